#!/usr/bin/env bash
# Measures prefill, decoding and the LookaheadKV training step of a model of the shape
# of Llama 3.2 1B with random bfloat16 weights side by side with PyTorch, and compares
# the gradients of the step. PyTorch is used for nothing else; it comes from a virtual
# environment, which is made with pip on the first run (about 3 GB with the model).
# On a machine that is not quiet, --clock cpu measures the processor time of one thread.
#
#   ./lab/bench/bench_pytorch.sh [--threads N] [--clock wall|cpu] [--rounds N] [--layers N] [--folder DIR] [--python PYTHON]
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

threads=2 clock=wall rounds=5 layers=16 folder=${TMPDIR:-/tmp}/glimpse-pytorch python=''
while [ $# -gt 0 ]; do
  case $1 in
    --threads | --clock | --rounds | --layers | --folder | --python)
      [ $# -gt 1 ] || die "$1: value missing"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) die "got '$1', want --threads, --clock, --rounds, --layers, --folder or --python with a value" ;;
  esac
done
for number in threads rounds layers; do
  [[ ${!number} =~ ^[1-9][0-9]*$ ]] || die "--$number: got '${!number}', want a whole number above 0"
done
[[ $clock =~ ^(wall|cpu)$ ]] || die "--clock: got '$clock', want wall or cpu"
[ "$clock" = wall ] || threads=1
export GLIMPSE_BENCH_CLOCK=$clock
folder=$(absolute "$folder")
[ -z "$python" ] || python=$(absolute "$python")
mkdir -p "$folder"
if [ -z "$python" ]; then
  python=$folder/venv/bin/python
  if ! "$python" -c 'import torch, safetensors, numpy' 2>/dev/null; then
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install --quiet torch safetensors numpy
  fi
fi
model=$folder/llama-$layers-layers
[ -e "$model/config.json" ] || "$python" lab/bench/bench_pytorch.py make "$model" --layers "$layers"

sed -n 's/^model name[^:]*: /machine: /p' /proc/cpuinfo | head -n 1
echo "threads: $threads, clock: $clock, load: $(cut -d ' ' -f 1-3 /proc/loadavg), date: $(date -u +%F)"
export GOMAXPROCS=$threads GLIMPSE_PYTORCH=$python GLIMPSE_PYTORCH_MODEL=$model
go test -v -timeout 3h -run '^$' -bench 'AgainstPyTorch/(prefill|decode|step)' -benchtime "${rounds}x" ./training
go test -v -timeout 3h -run '^$' -bench 'AgainstPyTorch/gradients' -benchtime 1x ./training
