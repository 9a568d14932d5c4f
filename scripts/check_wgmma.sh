#!/usr/bin/env bash
# Looks for hazards of warpgroup products in the committed machine code of the kernels for
# Hopper (check_wgmma.py). nvdisasm comes from PyPI (python3 with pip), and so does what
# unpacks the kernels.
#
#   ./scripts/check_wgmma.sh
set -euo pipefail
source "$(dirname "$0")/common.sh"
[ $# = 0 ] || die "got '$1', want nothing"

disassembler=13.5.37 zstandard=0.25.0
tools=$root/.cache/nvdisasm-$disassembler
if [ ! -e "$tools/done" ]; then
  mkdir -p "$tools"
  python3 -m pip install --quiet --upgrade --no-deps --only-binary=:all: --root-user-action=ignore --target "$tools" \
    "nvidia-cuda-nvdisasm==$disassembler" "zstandard==$zstandard" || die "nvdisasm could not be fetched from PyPI"
  touch "$tools/done"
fi
nvdisasm=$(find "$tools" -name nvdisasm -type f | head -n 1)
chmod +x "$nvdisasm"
cubin=$(mktemp)
trap 'rm -f "$cubin"' EXIT

# The fat binary has one image, machine code for sm_90a behind headers of 16 and some bytes.
PYTHONPATH=$tools python3 - kernels/cuda/kernels.tar.zst "$cubin" <<'END_PYTHON'
import io, pathlib, sys, tarfile, zstandard
data = zstandard.ZstdDecompressor().decompressobj().decompress(pathlib.Path(sys.argv[1]).read_bytes())
fat = tarfile.open(fileobj=io.BytesIO(data)).extractfile("attention_hopper.fatbin").read()
pathlib.Path(sys.argv[2]).write_bytes(fat[fat.index(b"\x7fELF"):])
END_PYTHON
# It warns of the ABI of CUDA 12.
"$nvdisasm" -c "$cubin" 2>/dev/null | python3 scripts/check_wgmma.py
