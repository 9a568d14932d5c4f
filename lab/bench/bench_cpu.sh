#!/usr/bin/env bash
# Measures the CPU backend against what the machine can do, every comparison side by
# side in one run: matrix products against OpenBLAS in single precision (Debian:
# apt-get install gcc libopenblas-dev; only for this comparison, the product never
# uses it), the matrix-vector products of decoding against a streaming sum over the
# same memory, prefill attention against the product's own matrix products, and a
# training step against the prefill in it. What is measured is medians and ratios.
# On a machine that is not quiet, --clock cpu measures the processor time of one thread.
#
#   ./lab/bench/bench_cpu.sh [--threads N] [--only machine|products|bandwidth|attention|step] [--clock wall|cpu]
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

threads=2 clock=wall only=''
while [ $# -gt 0 ]; do
  case $1 in
    --threads | --only | --clock)
      [ $# -gt 1 ] || die "$1: value missing"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) die "got '$1', want --threads N, --only PART or --clock wall|cpu" ;;
  esac
done
[[ $threads =~ ^[1-9][0-9]*$ ]] || die "--threads: got '$threads', want a whole number above 0"
[[ $only =~ ^(|machine|products|bandwidth|attention|step)$ ]] || die "--only: got '$only', want machine, products, bandwidth, attention or step"
[[ $clock =~ ^(wall|cpu)$ ]] || die "--clock: got '$clock', want wall or cpu"
[ "$clock" = wall ] || threads=1
export GLIMPSE_BENCH_CLOCK=$clock
export GOMAXPROCS=$threads

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sed -n 's/^model name[^:]*: /machine: /p' /proc/cpuinfo | head -n 1
echo "threads: $threads, clock: $clock, load: $(cut -d ' ' -f 1-3 /proc/loadavg), date: $(date -u +%F)"

wants() { [ -z "$only" ] || [ "$only" = "$1" ]; }
bench() { # package, benchmark, time of each
  go test -run '^$' -bench "$2" -benchtime "$3" "$1" | grep -E '^Benchmark|^---|FAIL|panic' || die "$2 failed"
}

if wants machine; then bench ./internal/simd BenchmarkMachine 1s; fi
if wants products; then
  cc -O2 -I/usr/include/x86_64-linux-gnu -o "$folder/peer" lab/bench/openblas_peer.c -lopenblas ||
    die "cannot build the comparison; on Debian: apt-get install gcc libopenblas-dev"
  GLIMPSE_BLAS_PEER=$folder/peer bench ./internal/simd BenchmarkAgainstBLAS 2s
fi
if wants bandwidth; then bench ./internal/simd BenchmarkDecodeBandwidth 2s; fi
if wants attention; then bench ./kernels BenchmarkPrefillAttention 2s; fi
if wants step; then bench ./training BenchmarkStep 1x; fi
