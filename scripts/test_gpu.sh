#!/usr/bin/env bash
# Tests the CUDA path. Without arguments on the host driver, which runs the kernels'
# own sources on the processor, so that no GPU is needed:
#
#   ./scripts/test_gpu.sh                 # all of it
#   ./scripts/test_gpu.sh -run Conform    # arguments go to "go test"
#   ./scripts/test_gpu.sh --device        # on the driver and the GPU of this machine, each
#                                         # test in a process of its own; -run REGEXP
#   ./scripts/test_gpu.sh --chip          # the rehearsal of a chip alone, as users run it
#   ./scripts/test_gpu.sh --mutants       # plants bugs and expects the tests to see each
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/gpu_env.sh

others=()
packages=(./internal/cudadriver ./kernels ./kernels/cuda ./autodiff ./model ./eviction ./lora ./softtokens ./internal/train ./cmd/evict ./scripts/gpubench)

if ! command -v g++ >/dev/null || ! command -v make >/dev/null; then
  command -v apt-get >/dev/null || die "g++ and make are missing and there is no apt-get to install them with"
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends g++ make libc6-dev
fi
scripts/kernels.sh --check

if [ "${1:-}" = --device ]; then
  shift
  export GLIMPSE_CUDA_DRIVER=${GLIMPSE_CUDA_DRIVER:-libcuda.so.1} # without a device tests fail, not skip
  # Each test is a process of its own: one that breaks the device breaks no other.
  binaries=$(mktemp -d) failed=''
  trap 'rm -rf "$binaries"' EXIT
  run=.
  [ "${1:-}" != -run ] || { run=${2:?-run: value missing} && shift 2; }
  [ $# = 0 ] || die "--device: got '$1', want -run REGEXP or nothing"
  for package in "${packages[@]}"; do
    echo "=== $package"
    go test -c -tags gpu -o "$binaries/${package##*/}.test" "$package"
    scripts/each_test.sh --run "$run" --folder "$package" "$binaries/${package##*/}.test" || failed+=" $package"
  done
  [ -z "$failed" ] || die "failed:$failed"
  exit
fi

# As users run it, on a rehearsal of a chip of 132 processors (make chip says what that is):
# memory comes in blocks that are used again, and no variable guards it.
chip() {
  make -s -C kernels/cuda -j"$(nproc)" chip
  local driver=$root/kernels/cuda/build/chip/libhostcuda.so failed=0
  (
    export GLIMPSE_CUDA_DRIVER=$driver GLIMPSE_CUBLASLT=$driver
    unset GLIMPSE_CUDA_EXACT
    go test -tags gpu -count=1 -run 'TestBackendsConform/cuda|TestCUDA' ./kernels/cuda &
    local kernels=$!
    go test -tags gpu -count=1 -run 'TestCUDAForecast|TestCUDAFootprint' ./internal/train ./eviction || failed=1
    # With everything off that something slower stands in for, a model is the same.
    GLIMPSE_CUDA_OFF=$(sed -n 's/^const family[A-Za-z]* family = "\(.*\)"$/\1/p' kernels/cuda/*.go | paste -sd,) \
      go test -tags gpu -count=1 -run 'TestAgainstTransformers/(llama3.1|qwen3)$/cuda|TestReferenceModelAgainstNumPy/cuda' ./model || failed=1
    wait "$kernels" || failed=1
    exit $failed
  )
}
if [ "${1:-}" = --chip ]; then
  chip
  exit
fi

make -s -C kernels/cuda -j"$(nproc)" host
driver=$root/kernels/cuda/build/libhostcuda.so
export GLIMPSE_CUDA_DRIVER=$driver GLIMPSE_CUBLASLT=$driver GLIMPSE_CUDA_EXACT=1

if [ "${1:-}" = --mutants ]; then
  exec scripts/mutants_gpu.sh
fi

go vet -tags gpu "${packages[@]}" ./internal/generate ./cmd/train
if [ $# -gt 0 ]; then
  go test -tags gpu "$@" "${packages[@]}"
  exit
fi
# What follows takes one processor each, so the second half runs beside the first.
log=$(mktemp)
(
  failed=0
  # Of the models' tests those that run on the device, one for each way of building a
  # family: the others have run without the tag, and every launch takes its time here.
  go test -tags gpu -run 'TestAgainstTransformers/(llama3.1|qwen2-window|qwen3|falcon|falcon-40b|mistral-v0.3|granite|smollm3|phi3.5|phi4-mini)$/cuda|TestReferenceModelAgainstNumPy/cuda|TestCache|TestRetain|TestBackendsAgree|TestObservations|TestHalf|TestCUDA' ./model || failed=1
  # As many processors as a larger device has, which takes more rows of a prompt at once.
  HOSTCUDA_PROCESSORS=80 go test -tags gpu -count=1 -run 'TestCUDAForecast|TestCUDAFootprint' ./internal/train ./eviction || failed=1
  # Blocks, warps and lanes the other way round: races that one order hides.
  HOSTCUDA_ORDER=reverse go test -tags gpu -count=1 -run 'TestBackendsConform/cuda|TestCUDA' ./kernels/cuda || failed=1
  # Sums that truncate as those of tensor cores do, where these are used.
  HOSTCUDA_MMA=truncate go test -tags gpu -count=1 -run 'TestBackendsConform/cuda/(Linear|MatMul|.*Attention)|TestCUDA(Prefill|Hopper|Half|Observe|Grad|Round|Thin|LowRank)' ./kernels/cuda || failed=1
  chip || failed=1
  exit $failed
) >"$log" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null || true; rm -f "$log"' EXIT

for package in "${packages[@]}"; do [ "$package" = ./model ] || [ "$package" = ./eviction ] || others+=("$package"); done
failed=0
# Of the policies' tests, too, those that run on the device.
go test -tags gpu -run 'CUDA|KeptSets|HalfCaches|AgainstNaive|NotFinite' ./eviction || failed=1
go test -tags gpu "${others[@]}" || failed=1
# Of generation and its command the forecasts of memory.
go test -tags gpu -run TestCUDA ./internal/generate ./cmd/train || failed=1
wait "$beside" || failed=1
cat "$log"
exit $failed
