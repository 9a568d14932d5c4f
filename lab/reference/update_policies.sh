#!/usr/bin/env bash
# Puts the table of policies into docs/policies.md, measures every policy side by side on
# the built-in model and puts the results into lab/results/policies.md; both between the
# lines "<!-- NAME -->" and "<!-- end of NAME -->", so that what people wrote around them
# stays.
#
#   ./lab/reference/update_policies.sh [--table] [--samples N]
#
# --table    only the table of policies, which takes a second
# --samples  prompts per task (16)
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

samples=16 measure=yes
while [ $# -gt 0 ]; do
  case $1 in
    --table) measure=no ;;
    --samples) samples=${2:?--samples: want a number}; shift ;;
    *) die "unknown argument $1" ;;
  esac
  shift
done
scripts/setup.sh
go build -o bin/ ./cmd/evict
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

./bin/evict policies --markdown | replace_section docs/policies.md policies
[ $measure = yes ] || exit 0

# For speckv: the model itself as an ideal draft, the small one that comes with it, and its first layers as a poor one.
command=(evict eval --policy all
  --budget "32,64,96,128" --tokens 512 --samples "$samples" --seed 1 --times all
  --draft self --draft shipped --draft two-layers=layers:2)
SECONDS=0
"$root/bin/${command[0]}" "${command[@]:1}" --table-out "$work/table.md" --json-out "$work/results.json" >/dev/null
{
  echo "Measured on $(date -u +%Y-%m-%d) on $(nproc) cores of $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1 | grep . || uname -m), commit $(git describe --always --dirty), in $(duration $SECONDS):"
  echo
  echo "<!-- not run: takes $(duration $SECONDS) -->"
  echo '```sh'
  echo "./bin/${command[*]}"
  echo '```'
  echo
  cat "$work/table.md"
} | replace_section lab/results/policies.md measured
