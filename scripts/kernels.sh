#!/usr/bin/env bash
# Compiles the CUDA kernels to the fat binaries that are committed beside their
# sources, and records what they were made of in kernels/cuda/kernels.sum.
#
#   ./scripts/kernels.sh           # compile all of them
#   ./scripts/kernels.sh --check   # only compare the record: needs no compiler
#
# Where there is no nvcc on the PATH, the pinned one is fetched from PyPI into
# .cache/ (python3 with pip is needed, no GPU and no toolkit).
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd kernels/cuda

# The pinned compiler.
nvcc=13.0.88 runtime=13.0.96 cccl=13.0.85
limit=$((6 << 20)) # bytes of all fat binaries

# What the binaries depend on: sources, flags, compiler. The host driver's own
# headers are no part of them.
sources() {
  echo "nvcc $nvcc"
  grep '^NVCCFLAGS\|^HOPPERFLAGS\|^	-gencode\|^KERNELS' Makefile
  sha256sum -- *.cu *.h
}
sum() { echo "sources $(sources | sha256sum | cut -d' ' -f1)"; sha256sum -- *.fatbin; }

if [ "${1:-}" = --check ]; then
  diff kernels.sum <(sum) || die "the fat binaries are not those of these sources; run make kernels and commit the result"
  size=$(cat -- *.fatbin | wc -c)
  [ "$size" -le "$limit" ] || die "the fat binaries have $size bytes, want at most $limit"
  exit
fi

if ! command -v nvcc >/dev/null || ! nvcc --version | grep -q "V${nvcc//./\\.}"; then
  toolkit=$root/.cache/nvcc-$nvcc
  if [ ! -x "$toolkit/nvidia/cu13/bin/nvcc" ]; then
    mkdir -p "$toolkit"
    python3 -m pip install --quiet --no-deps --only-binary=:all: --target "$toolkit" \
      "nvidia-cuda-nvcc==$nvcc" "nvidia-nvvm==$nvcc" "nvidia-cuda-crt==$nvcc" \
      "nvidia-cuda-runtime==$runtime" "nvidia-cuda-cccl==$cccl" || die "the compiler could not be fetched from PyPI"
    chmod +x "$toolkit"/nvidia/cu13/bin/* "$toolkit"/nvidia/cu13/nvvm/bin/*
  fi
  PATH=$toolkit/nvidia/cu13/bin:$PATH
fi
make -B -j"$(nproc)" cuda # all of it: times of files say nothing after a merge
sum >kernels.sum
