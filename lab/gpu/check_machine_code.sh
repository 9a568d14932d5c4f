#!/usr/bin/env bash
# Looks at the committed machine code of the kernels, for Hopper: for hazards of warpgroup
# products (check_wgmma.py), and what it takes against budgets (sass_budget.py,
# sass_budgets.txt). nvdisasm comes from PyPI (python3 with pip), and so does what unpacks the
# kernels; where PyPI is out of reach it ends with 77.
#
#   ./lab/gpu/check_machine_code.sh            # --table prints what each kernel takes, too
#   ./lab/gpu/check_machine_code.sh --planted  # compiles sources with what makes them slower
#                                              # (sass_budgets.planted), which must be seen; needs
#                                              # the compilers that kernels.sh fetches
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"
case "$*" in '' | --table | --planted) ;; *) die "got '$*', want --table, --planted or nothing" ;; esac

disassembler=13.5.37 zstandard=0.25.0
tools=$root/.cache/nvdisasm-$disassembler
if [ ! -e "$tools/done" ]; then
  mkdir -p "$tools"
  python3 -m pip install --quiet --upgrade --no-deps --only-binary=:all: --root-user-action=ignore --target "$tools" \
    "nvidia-cuda-nvdisasm==$disassembler" "zstandard==$zstandard" || { echo "nvdisasm could not be fetched from PyPI"; exit 77; }
  touch "$tools/done"
fi
nvdisasm=$(find "$tools" -name nvdisasm -type f | head -n 1)
chmod +x "$nvdisasm"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${1:-}" = --planted ]; then
  source <(grep '^nvcc=' scripts/kernels.sh)
  PATH=$root/.cache/nvcc-$nvcc/nvidia/cu13/bin:$PATH
  command -v nvcc >/dev/null || die "nvcc is missing: run make kernels"
  survived=0
  while IFS='|' read -r source program what; do
    rm -rf "$work/cuda" && mkdir "$work/cuda"
    cp kernels/cuda/{*.cu,*.h,cuda.mk} "$work/cuda"
    sed -i "$program" "$work/cuda/$source"
    name=${source%.cu} arch=90
    [ "$name" != attention_hopper ] || arch=90a
    if cmp -s "$work/cuda/$source" "kernels/cuda/$source"; then
      verdict='NO CHANGE'
    elif ! make -s -C "$work/cuda" -f cuda.mk OUT=out "out/$name.sm_$arch.cubin" PTXAS="$root/.cache/ptxas-$ptxas/nvidia/cuda_nvcc/bin/ptxas" >"$work/log" 2>&1; then
      cat "$work/log" && verdict='NO BUILD'
    elif python3 lab/gpu/sass_budget.py "$nvdisasm" lab/gpu/sass_budgets.txt --some "$work/cuda/out/$name.sm_$arch.cubin" >"$work/log"; then
      verdict=SURVIVED
    else
      verdict=seen what+=": $(head -n 1 "$work/log")"
    fi
    printf '%-9s  %s: %s\n' "$verdict" "$source" "$what"
    [ "$verdict" = seen ] || survived=$((survived + 1))
  done < <(grep -v '^#' lab/gpu/sass_budgets.planted)
  [ "$survived" = 0 ] || die "$survived are not seen"
  exit
fi

# A fat binary is a header of 16 bytes and images, whose headers say how long they are, what they
# are (2: machine code) and what for. The archives are in kernels.sum, the oldest first, which is the
# dictionary of the others.
PYTHONPATH=$tools python3 - kernels/cuda "$work" <<'END_PYTHON'
import io, pathlib, struct, sys, tarfile, zstandard
folder, work = map(pathlib.Path, sys.argv[1:])
before = b"" # as kernels.sh packs them
for line in (folder / "kernels.sum").read_text().splitlines():
    archive = folder / line.split()[1]
    if archive.suffix != ".zst":
        continue
    dictionary = zstandard.ZstdCompressionDict(before, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    data = zstandard.ZstdDecompressor(dict_data=dictionary).decompressobj().decompress(archive.read_bytes())
    before = data + before
    for member in (tar := tarfile.open(fileobj=io.BytesIO(data))):
        fat, at = tar.extractfile(member).read(), 16
        if not (folder / member.name).with_suffix(".cu").exists():
            continue
        while at < len(fat):
            kind, _, header, size, *_, arch = struct.unpack_from("<HHIQIIII", fat, at)
            if kind == 2 and arch == 90:
                (work / member.name).with_suffix(".cubin").write_bytes(fat[at + header:at + header + size])
            at += header + size
END_PYTHON
failed=''
# It warns of the ABI of CUDA 12.
"$nvdisasm" -c "$work/attention_hopper.cubin" 2>/dev/null | python3 lab/gpu/check_wgmma.py || failed=1
python3 lab/gpu/sass_budget.py "$nvdisasm" lab/gpu/sass_budgets.txt "$@" "$work"/*.cubin || failed=1
[ -z "$failed" ]
