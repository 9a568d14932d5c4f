#!/usr/bin/env bash
# Runs the kernels' tests on this machine's GPU under NVIDIA's compute-sanitizer: memcheck
# for accesses outside of what was allocated, racecheck for races in shared memory. Every
# allocation is one of its own (GLIMPSE_CUDA_EXACT), so that overruns of tensors show.
#
#   ./lab/gpu/sanitize_gpu.sh                            # both tools, all tests of kernels
#   ./lab/gpu/sanitize_gpu.sh --tool memcheck --run 'TestBackendsConform/cuda'
#
#   --binaries DIR   folder with the test binary, as "lab/bench/bench_gpu.sh --build" makes it
#   --limit SECONDS  of each tool (450); tests that are left are counted as "not in time"
#
# compute-sanitizer comes with CUDA toolkits, and as $COMPUTE_SANITIZER. Exits with 0 if
# both tools ran and found nothing, 77 where there is no compute-sanitizer or it cannot
# run here, and 1 otherwise.
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

binaries=$root/bin/bench-gpu tool='' run='TestBackendsConform/cuda|TestCUDA' limit=450
while [ $# -gt 0 ]; do
  case $1 in
    --binaries | --tool | --run | --limit)
      [ $# -gt 1 ] || die "$1: value missing"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) die "got '$1', want --binaries, --tool, --run or --limit with a value" ;;
  esac
done
[[ $tool =~ ^(|memcheck|racecheck)$ ]] || die "--tool: got '$tool', want memcheck or racecheck"
binaries=$(absolute "$binaries")

sanitizer=${COMPUTE_SANITIZER:-}
for candidate in compute-sanitizer /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer /opt/cuda/bin/compute-sanitizer; do
  [ -n "$sanitizer" ] || sanitizer=$(command -v "$candidate" || true)
done
if [ -z "$sanitizer" ] || ! command -v "$sanitizer" >/dev/null; then
  echo "sanitize_gpu.sh: compute-sanitizer is not here: install a CUDA toolkit, or name it in COMPUTE_SANITIZER; nothing was checked"
  exit 77
fi
tests=$binaries/cuda.test
[ -x "$tests" ] || die "$tests is missing: \"make bench-gpu-binaries\" builds it"
"$sanitizer" --version | sed -n '/[Vv]ersion/p'

export GLIMPSE_CUDA_DRIVER=${GLIMPSE_CUDA_DRIVER:-libcuda.so.1} GLIMPSE_CUDA_EXACT=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cd "$binaries"

# One process for each test, and for each operation of TestBackendsConform: what a tool finds
# ends a process. Operations are listed by what the processor runs of them.
units=()
for test in $("$tests" -test.list "${run//\/cuda/}" | grep '^Test'); do
  if [ "$test" != TestBackendsConform ]; then
    units+=("^$test\$")
    continue
  fi
  for op in $("$tests" -test.run '^TestBackendsConform$/^cpu$' -test.v | sed -nE 's|^=== RUN +TestBackendsConform/cpu/([^/]+)$|\1|p' | sort -u); do
    units+=("^$test\$/^cuda\$/^$op\$")
  done
done
[ ${#units[@]} -gt 0 ] || die "--run: no test is called like '$run'"

refusals='not supported|unable to (launch|attach|connect)|failed to initialize|insufficient permissions|Target application terminated before'
findings='Invalid __|Misaligned|[Hh]azard|out of bounds'
failed=''
for t in ${tool:-memcheck racecheck}; do
  start=$SECONDS clean=0 unable=0 late=0
  echo "=== $t, ${#units[@]} tests"
  options=()
  # The out-of-memory test asks for what cannot be, which memcheck would report.
  [ "$t" != memcheck ] || options=(--report-api-errors no)
  for unit in "${units[@]}"; do
    left=$((limit - SECONDS + start)) code=0
    if [ "$left" -lt 5 ]; then
      late=$((late + 1))
      continue
    fi
    timeout -k 5 "$left" "$sanitizer" --tool "$t" --error-exitcode 99 "${options[@]}" "$tests" -test.run "$unit" -test.v -test.timeout "${left}s" >"$log" 2>&1 || code=$?
    if [ $code = 124 ] || [ $code = 137 ]; then
      late=$((late + 1))
    elif [ $code = 0 ] && grep -q 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log" && ! grep -q '^--- SKIP' "$log"; then
      clean=$((clean + 1))
    elif { [ $code = 0 ] && grep -q '^--- SKIP' "$log"; } || { grep -qiE "$refusals" "$log" && ! grep -qE "$findings" "$log"; }; then
      unable=$((unable + 1)) # another device's test, or what the tool does not know
    else
      failed+=" $t:$unit"
      echo "--- $unit: exit code $code"
      tail -n 40 "$log"
    fi
  done
  echo "    $t: $clean clean, $unable cannot run here, $late not in time; $(duration $((SECONDS - start)))"
  if [ $clean = 0 ] && [ -z "$failed" ]; then
    echo "sanitize_gpu.sh: $t cannot run here; nothing was checked by it"
    exit 77
  fi
done
[ -z "$failed" ] || die "failed:$failed"
