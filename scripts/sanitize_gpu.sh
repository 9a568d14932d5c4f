#!/usr/bin/env bash
# Runs the kernels' tests on this machine's GPU under NVIDIA's compute-sanitizer: memcheck
# for accesses outside of what was allocated, racecheck for races in shared memory. Every
# allocation is one of its own (GLIMPSE_CUDA_EXACT), so that overruns of tensors show.
#
#   ./scripts/sanitize_gpu.sh                            # both tools, all tests of kernels
#   ./scripts/sanitize_gpu.sh --tool memcheck --run 'TestBackendsConform/cuda'
#
#   --binaries DIR   folder with the test binary, as "scripts/bench_gpu.sh --build" makes it
#   --limit SECONDS  of each tool (450)
#
# compute-sanitizer comes with CUDA toolkits, and as $COMPUTE_SANITIZER. Exits with 0 if
# both tools ran and found nothing, 77 where there is no compute-sanitizer or it cannot
# run here, and 1 otherwise.
set -euo pipefail
source "$(dirname "$0")/common.sh"

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
tests=$binaries/kernels.test
[ -x "$tests" ] || die "$tests is missing: \"make bench-gpu-binaries\" builds it"
"$sanitizer" --version | sed -n '1p;/[Vv]ersion/p'

export GLIMPSE_CUDA_DRIVER=${GLIMPSE_CUDA_DRIVER:-libcuda.so.1} GLIMPSE_CUDA_EXACT=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=''
for t in ${tool:-memcheck racecheck}; do
  start=$SECONDS code=0
  echo "=== $t"
  options=()
  # The out-of-memory test asks for what cannot be, which memcheck would report.
  [ "$t" != memcheck ] || options=(--report-api-errors no)
  (cd "$binaries" && timeout "$limit" "$sanitizer" --tool "$t" --error-exitcode 99 "${options[@]}" \
    "$tests" -test.run "$run" -test.timeout "${limit}s") >"$log" 2>&1 || code=$?
  tail -n 40 "$log"
  if [ $code != 0 ] && grep -qiE 'not supported|unable to (launch|attach|connect)|failed to initialize|insufficient permissions|Target application terminated before' "$log" &&
    ! grep -q 'Invalid __\|hazard\|out of bounds' "$log"; then
    echo "sanitize_gpu.sh: $t cannot run here; nothing was checked by it"
    exit 77
  fi
  grep -q 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log" || { failed+=" $t (no summary, exit code $code)" && continue; }
  [ $code = 0 ] || failed+=" $t (exit code $code)"
  echo "    $t: $(duration $((SECONDS - start)))"
done
[ -z "$failed" ] || die "failed:$failed"
