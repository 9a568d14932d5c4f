#!/usr/bin/env bash
# Tests interop/kvpress against evict (pytest), and runs the Python example of docs/interop.md as it is printed, with a real model. CI
# does not run it, since it fetches PyTorch, transformers and kvpress from PyPI (5 GB), once, into the user's cache; lab/nightly.sh does.
#
#   ./lab/peers/check_kvpress.sh [--example FOLDER] [pytest's arguments]
#
# --example  folder of Qwen2.5-Coder-0.5B-Instruct: the example alone; 18 s of processor time on two cores
# GLIMPSE_PRESS_VENV is the folder of the Python environment. Exits with 77 where PyPI is out of reach.
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

case ${1:-} in
  -h | --help) sed -n '2,/^set/{/^# \{0,1\}/s///p}' "$root/lab/peers/check_kvpress.sh"; exit ;;
esac
[ -x bin/evict ] && [ -x bin/train ] || die "bin/evict or bin/train is missing: make build"
venv=${GLIMPSE_PRESS_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/glimpse/kvpress}
if [ ! -e "$venv/installed" ]; then
  echo "fetching PyTorch, transformers and kvpress, once, into $venv" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check kvpress==0.5.5 pytest gguf accelerate || exit 77
  touch "$venv/installed"
fi
export PYTHONPATH=$root/interop/kvpress HF_HUB_OFFLINE=1
if [ "${1:-}" = --example ]; then
  [ -d "${2:-}" ] || die "--example: want a folder of Qwen2.5-Coder-0.5B-Instruct"
  model=$(absolute "$2")
  example=$(awk '/^```python$/ { text = "" ; code = 1; next } /^```/ { if (code && text ~ /HeadBudgetsPress/) { printf "%s", text; exit } code = 0 } code { text = text $0 "\n" }' docs/interop.md)
  [ -n "$example" ] || die "docs/interop.md has no Python example of HeadBudgetsPress"
  exec "$venv/bin/python" - "$model" <<END
import sys
model_folder = sys.argv[1]
text = "Minutes of the meeting. The letter to the council was written by Maria Lopez. " + open("docs/scaling.md").read()[:6000]
$example
END
fi
"$venv/bin/python" -m pytest -q interop/kvpress "$@"
