#!/usr/bin/env bash
# Tests the CUDA path. Without arguments on the host driver, which runs the kernels'
# own sources on the processor, so that no GPU is needed:
#
#   ./scripts/test_gpu.sh                 # all of it
#   ./scripts/test_gpu.sh --brief         # what .ci/run does, and its vet: not on the rehearsal of a chip, and fewer families
#   ./scripts/test_gpu.sh -run Conform    # arguments go to "go test"
#   ./scripts/test_gpu.sh --package ./kernels/cuda -run TestCUDASelect   # of one package: seconds
#   ./scripts/test_gpu.sh --device        # on the driver and the GPU of this machine, each
#                                         # test in a process of its own; -run REGEXP
#   ./scripts/test_gpu.sh --chip          # the rehearsal of a chip alone, as users run it
#   ./scripts/test_gpu.sh --mutants       # plants the bugs of lab/gpu/mutants and
#                                         # expects the tests to see each; a REGEXP of sources,
#                                         # or --changed: not if all were seen as things are
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/gpu_env.sh

packages=(./kernels/cudadriver ./kernels ./kernels/cuda ./autodiff ./model ./model/kvcache ./model/runner ./eviction ./training ./cmd/evict)

compilers
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
    lab/gpu/each_test.sh --run "$run" --folder "$package" "$binaries/${package##*/}.test" || failed+=" $package"
  done
  [ -z "$failed" ] || die "failed:$failed"
  exit
fi

# compile makes the host driver: one process at a time, since checks run side by side.
compile() { # host or chip
  flock kernels/cuda/Makefile make -s -C kernels/cuda -j"$(nproc)" "$1"
}

# build compiles the tests once for all the ways that they run in.
binaries=$(mktemp -d)
short='' brief='' # -test.short, of a part and with --brief
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$binaries"' EXIT
build() { # PACKAGE...
  local package
  for package in "$@"; do
    local name=${package#./}
    go test -c -tags gpu -ldflags='-s -w' -o "$binaries/${name//\//-}" "$package"
  done
}

# tests runs those of a package that match, in its folder as "go test" does. What fails
# leaves a mark, and what comes after it runs, too.
tests() { # PACKAGE RUN [SKIP]
  local name=${1#./} log
  printf -- '--- %s %s%s\n' "$1" "${2:0:100}" "${ways:+ ($ways)}"
  log=$(mktemp "$binaries/XXXXXX")
  (cd "$1" && "$binaries/${name//\//-}" -test.timeout 30m $short -test.run "$2" ${3:+-test.skip "$3"}) 2>&1 | tee "$log" || touch "$binaries/failed"
  ! grep -q 'no tests to run' "$log" || touch "$binaries/failed" # they have moved
}

# beside runs functions two at a time and prints what each said when it is done. Most tests
# here take one processor: the driver runs one kernel at a time.
beside() { # FUNCTION...
  local part ids=() parts=("$@") i
  for part in "${parts[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || true; done
    { TIMEFORMAT="    $part: %R s, %U s + %S s of processors"; time "$part" || touch "$binaries/failed"; } >"$binaries/$part.log" 2>&1 &
    ids+=($!)
  done
  for i in "${!ids[@]}"; do
    wait "${ids[i]}" || touch "$binaries/failed"
    cat "$binaries/${parts[i]}.log"
  done
  [ ! -e "$binaries/failed" ]
}

# As users run it, on a rehearsal of a chip of 132 processors (make chip says what that is):
# memory comes in blocks that are used again, and no variable guards it. Warps and lanes go on in
# random order, which shows the races that one order hides.
on_chip() {
  ways=chip
  export GLIMPSE_CUDA_DRIVER=$root/kernels/cuda/build/chip/libhostcuda.so
  export GLIMPSE_CUBLASLT=$GLIMPSE_CUDA_DRIVER GLIMPSE_NCCL=$GLIMPSE_CUDA_DRIVER
  unset GLIMPSE_CUDA_EXACT
}
# With sums that truncate as those of tensor cores do.
chip_kernels() { on_chip; HOSTCUDA_MMA=truncate tests ./kernels/cuda 'TestBackendsConform/cuda|TestCUDA' TestCUDALink; }
chip_memory() { on_chip; tests ./training "$memory"; tests ./eviction "$memory"; }
memory='TestCUDAForecast|TestCUDAFootprint'
if [ "${1:-}" = --chip ]; then
  compile chip
  build ./kernels/cuda ./training ./eviction
  beside chip_kernels chip_memory
  exit
fi

compile host
driver=$root/kernels/cuda/build/libhostcuda.so
export GLIMPSE_CUDA_DRIVER=$driver GLIMPSE_CUBLASLT=$driver GLIMPSE_NCCL=$driver GLIMPSE_CUDA_EXACT=1

if [ "${1:-}" = --mutants ]; then
  shift
  rm -rf "$binaries"
  exec lab/gpu/mutants_gpu.sh "$@"
fi
parts=(eviction model kernels chip_kernels many_processors chip_memory training commands) # the longest first
if [ "${1:-}" = --brief ]; then
  shift
  brief=-test.short
  parts=(eviction model kernels training commands)
fi
if [ "${1:-}" = --package ]; then
  packages=("${2:?--package: value missing}")
  shift 2
  [ $# -gt 0 ] || set -- -run .
fi
if [ $# -gt 0 ]; then
  go test -tags gpu -count=1 "$@" "${packages[@]}" # go does not see that the driver has changed
  exit
fi

# What of a package has a device in it; the rest has run without the tag. Of the models'
# tests one for each way of building a family: every launch takes its time here.
families='qwen2-window|qwen3|falcon|phi3.5|gemma2|gemma3|gpt-oss' # the operations of the others are among theirs
[ -n "$brief" ] || families+='|llama3.1|falcon-40b|mistral-v0.3|granite|smollm3|phi4-mini'
kernels() {
  tests ./kernels/cudadriver .
  tests ./kernels . '^TestBackendsConform$|^TestContract$|^TestSplits$|^TestThreadsDoNotChangeBits$|^TestArena|^TestObservedScoresByDefinition$'
  tests ./kernels/cuda . '^TestBackendsConform$/^cpu|^TestCUDAScratch' # scratch memory is that of a chip: chip_kernels
}
model() {
  tests ./model 'TestReferenceModelAgainstNumPy/cuda|TestCUDA'
  tests ./model/kvcache 'TestCache|TestRetain'
  tests ./model/runner "TestAgainstTransformers/($families)\$/cuda|TestCache|TestBackendsAgree|TestRowsOfABatch|TestObservations|TestHalf|TestCUDA" '/^(cpu|reference|reference64)$'
}
eviction() { # with --brief as the processor's: what a device does is in each, shapes and prompts are fewer
  local short=$brief
  tests ./eviction 'CUDA|BatchedSessionsAnswerAsAlone|KeptSets|HalfCaches|NotFinite' "$memory"
}
many_processors() { # Memory, as of a larger device, which takes more rows of a prompt at once.
  ways=$FUNCNAME
  export HOSTCUDA_PROCESSORS=80
  tests ./training "$memory"; tests ./eviction "$memory"
}
training() {
  tests ./training 'TestCUDA|TestFirstLossAgrees|Test(LookaheadKV|JudgeQ)StepAgainstPyTorch/.*/cuda|TestGraphAndRuntimeAgree/cuda' "$memory"
}
commands() {
  tests ./cmd/evict 'TestCUDA|TestDoctor|TestDeviceThatCannotBeUsed'
  tests ./generation TestCUDA # forecasts of memory
  tests ./cmd/train TestCUDA
}

[ -n "$brief" ] || go vet -tags gpu "${packages[@]}" ./generation ./cmd/train
[[ " ${parts[*]} " != *" chip_"* ]] || compile chip
build ./kernels/cudadriver ./kernels ./kernels/cuda ./model ./model/kvcache ./model/runner ./eviction ./training ./cmd/evict ./generation ./cmd/train
beside "${parts[@]}"
