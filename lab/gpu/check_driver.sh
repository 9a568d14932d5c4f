#!/usr/bin/env bash
# Compares kernels/cudadriver/include/cuda.h, which declares the driver so that no toolkit is
# needed to build, with NVIDIA's headers: of the oldest CUDA that is served, of the last 12 and
# of 13. They come from PyPI's wheels (python3 with pip; gcc), or from a folder of a toolkit:
#
#   ./lab/gpu/check_driver.sh                              # the pinned wheels
#   ./lab/gpu/check_driver.sh --include /usr/local/cuda/include
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"
source lab/gpu/headers.sh

ours=kernels/cudadriver/include/cuda.h
if [ "${1:-}" = --include ]; then
  exec python3 lab/gpu/check_driver.py "$ours" "$(absolute "$2")"
fi
[ $# = 0 ] || die "got '$1', want --include FOLDER or nothing"

failed=''
for wheel in "nvidia-cuda-runtime-cu12 12.0.146" "nvidia-cuda-runtime-cu12 12.9.79" "nvidia-cuda-runtime 13.0.96"; do
  # shellcheck disable=SC2086
  python3 lab/gpu/check_driver.py "$ours" "$(wheel $wheel)" || failed+=" $wheel;"
done
[ -z "$failed" ] || die "not as in$failed"
