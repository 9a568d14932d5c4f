#!/usr/bin/env bash
# The first call on a machine with a GPU: what is there, then the riskiest tests, each in a process
# of its own, then parts of the benchmark, then all other tests, within a number of seconds, all of it in
# one archive.
#
#   ./lab/gpu/gpu_first.sh [options] [stage ...]     stages: look first parts tests conform
#
#   --binaries DIR   what "lab/bench/bench_gpu.sh --build" makes     (bin/bench-gpu)
#   --out DIR        where the archive goes                        ($OUT/gpu-first, out/gpu-first without OUT)
#   --seconds N      for everything                                (540)
#   --tiny           a tiny model, few tests: to try the script itself, on any driver
#
# The archive is results.tar.gz, in pieces of 15 MiB where it is larger, of which there are
# at most 8: long logs lose their middle.
set -uo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

binaries=$root/bin/bench-gpu out=${OUT:-$root/out}/gpu-first seconds=540 tiny='' stages=()
while [ $# -gt 0 ]; do
  case $1 in
    --binaries | --out | --seconds)
      [ $# -gt 1 ] || die "$1: value missing"
      declare "${1#--}=$2"
      shift 2
      ;;
    --tiny) tiny=--tiny && shift ;;
    look | first | parts | tests | conform) stages+=("$1") && shift ;;
    *) die "got '$1', want one of the options and stages that the head of this file lists" ;;
  esac
done
[ ${#stages[@]} -gt 0 ] || stages=(look first parts tests conform)
binaries=$(absolute "$binaries") out=$(absolute "$out")
[ -n "${seconds//[0-9]/}" ] && die "--seconds: got '$seconds', want a number"

begin=$SECONDS work=$out/results
left() { echo $((seconds - SECONDS + begin)); }
rm -rf "$work" "$out"/results.tar.gz*
mkdir -p "$work"
export GLIMPSE_CUDA_DRIVER=${GLIMPSE_CUDA_DRIVER:-libcuda.so.1}
# Every test is a process: loading all of cuBLASLt, or compiling for want of a place where the driver keeps
# what it has compiled, would be most of the time.
export CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-LAZY} HOME=${HOME:-$out/home}
mkdir -p "$HOME"

# What loads and multiplies, and Hopper's kernels, come first.
first='TestCUDARoundedProducts TestCUDAHopperPrefill
  TestCUDAHopperRandom TestCUDAPrefillAttention TestCUDAStepAttention TestCUDADecodeLinear TestCUDADecodeBlocks TestCUDAMaps
  TestCUDAGraphRuns TestCUDASteps TestCUDAObserveHalf TestCUDAObserveBF16 TestCUDAGradHalf TestCUDASelect TestCUDADraw'
tests=TestCUDA conform=TestBackendsConform
[ -z "$tiny" ] || tests='TestCUDA(Maps|DrawOfEquals|GraphRuns|ConstantsAre.*)$' first=TestCUDAMaps conform=TestBackendsConform/cuda/RMSNorm

summary() { tee -a "$work/summary.txt"; }
failed=''
unpacked=$("$root/lab/bench/bench_gpu.sh" --binaries "$binaries" --unpack) || die "$unpacked"
for stage in "${stages[@]}"; do
  [ "$(left)" -gt 5 ] || break
  echo "=== $stage, $(left) s left" | summary
  case $stage in
    look)
      { nvidia-smi; uname -r; ldd --version | head -n 1; nproc; free -g; df -h /tmp; command -v python3 compute-sanitizer; } >"$work/machine.txt" 2>&1
      head -n 30 "$work/machine.txt"
      # The second start finds what the driver has compiled for the first one.
      for start in first second; do
        TIMEFORMAT="$start start of a process that opens the device: %R s"
        { time "$binaries/evict" doctor >"$work/doctor.txt" 2>&1; } 2>&1 | summary
      done
      cat "$work/doctor.txt"
      ;;
    first)
      lab/gpu/each_test.sh --run "^(${first//[[:space:]]/|})\$" --limit 60 --seconds "$(left)" --logs "$work/logs" "$binaries/cuda.test" 2>&1 | summary || failed+=" first"
      ;;
    tests)
      lab/gpu/each_test.sh --run "$tests" --skip "$first" --limit 60 --seconds "$(left)" --logs "$work/logs" "$binaries/cuda.test" 2>&1 | summary || failed+=" tests"
      ;;
    conform)
      lab/gpu/each_test.sh --run "$conform" --limit 40 --seconds "$(left)" --logs "$work/logs" "$binaries/cuda.test" 2>&1 | summary || failed+=" conform"
      ;;
    parts)
      # What the parts measure says what the tests above lacked.
      later=$("$binaries/cuda.test" -test.list "$tests" | grep -c '^Test')
      awk -v later="$later" '/ passed, .* not run$/ { p += $1; f += $3; s += $5; n += $7 } END { if (n < later - p - f - s) n = later - p - f - s }
        END { if (p + f) printf "{\"part\":\"tests\",\"tests\":{\"passed\":%d,\"failed\":%d,\"skipped\":%d,\"not_run\":%d}}\n", p, f, s, n }' \
        "$work/summary.txt" >"$work/tests.json"
      [ -s "$work/tests.json" ] || rm "$work/tests.json"
      for part in ceilings kernels prefill decode ttft train; do
        share=$(left)
        [ "$share" -gt 10 ] || break
        timeout -k 5 "$share" "$binaries/gpubench" "$part" --out "$work" --binaries "$binaries" --repeats 3 --limit "$((share * 3 / 4))s" $tiny >"$work/$part.log" 2>&1 || failed+=" $part"
        tail -n 3 "$work/$part.log" | summary
      done
      ;;
  esac
done
echo "failed:${failed:- nothing}" | summary

# In the archive a log has at most 256 KiB.
find "$work" -name '*.log' -size +256k | while read -r log; do
  { head -c 64K "$log" && printf '\n[...]\n' && tail -c 192K "$log"; } >"$log.short" && mv "$log.short" "$log"
done
tar -C "$out" -czf "$out/results.tar.gz" results && rm -rf "$work"
if [ "$(stat -c %s "$out/results.tar.gz")" -gt $((15 << 20)) ]; then
  split -b 15M -d "$out/results.tar.gz" "$out/results.tar.gz." && rm "$out/results.tar.gz"
  rm -f "$out"/results.tar.gz.{08,09,[1-9]?}
fi
echo "results:" "$out"/results.tar.gz*
[ -z "$failed" ]
