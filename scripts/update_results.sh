#!/usr/bin/env bash
# Puts what scripts/reference_results.sh has finished into docs/results.md, each run between the lines
# "<!-- NAME -->" and "<!-- end of NAME -->", and its chart beside it.
#
#   ./scripts/update_results.sh [--out DIR]
#
# --out  folder of the runs (out/results)
set -euo pipefail
source "$(dirname "$0")/common.sh"

out=$root/out/results
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$(absolute "${2:?--out: want a folder}") ;;
    *) die "unknown argument $1" ;;
  esac
  shift 2
done
for name in test_512 test_2048 ablations_512 ablations_2048 compositions latency; do
  [ -e "$out/done/$name" ] || continue
  read -r seconds cores < <(awk -v name="$name" '$1 == name { line = $2 " " $3 } END { print line }' "$out/times")
  {
    echo "Measured on $(date -u -r "$out/done/$name" +%Y-%m-%d) on $cores cores of $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1 | grep . || uname -m), commit $(cat "$out/$name.commit"), in $(duration "$seconds"):"
    echo
    echo "<!-- not run: takes $(duration "$seconds") -->"
    echo '```sh'
    echo "./scripts/reference_results.sh --stage $name"
    echo '```'
    echo
    python3 scripts/reference_claims.py "$out" "$name"
  } | replace_section docs/results.md "$name"
  [ ! -e "$out/$name.svg" ] || cp "$out/$name.svg" "docs/results-$name.svg"
done
