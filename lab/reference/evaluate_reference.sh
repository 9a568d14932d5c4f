#!/usr/bin/env bash
# Measures every policy on the built-in model as lab/reference/reference.yaml says: needles by length and
# depth, two questions to one context, copies and chains with what is kept of them,
# eviction in the middle of an answer, times and memory. Makes a run folder and the
# report of it.
#
#   ./lab/reference/evaluate_reference.sh [--out FOLDER] [--resume] [--docs]
#
# --out     folder of the run (out/reference)
# --resume  go on with a run that was stopped
# --docs    put the report into lab/results/report, too, which the repository keeps
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

out=out/reference again=--replace docs=
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$(absolute "${2:?--out: want a folder}"); shift ;;
    --resume) again=--resume ;;
    --docs) docs=yes ;;
    *) die "unknown argument $1" ;;
  esac
  shift
done
scripts/setup.sh
go build -o bin/ ./cmd/evict
mkdir -p "$(dirname "$out")"
rm -f "$out.txt"
SECONDS=0
./bin/evict eval --config lab/reference/reference.yaml --out "$out" $again --table-out "$out.txt" >/dev/null
took=$(duration $SECONDS) load=$(cut -d' ' -f2 /proc/loadavg 2>/dev/null || echo unknown)
./bin/evict report "$out" --samples 1 --out "$out.html" --out "$out.md" --replace
echo "measured in $took: $out.html, $out.md, $out.txt"
[ -n "$docs" ] || exit 0

# Of the page only what is small: seven policies at one budget.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
./bin/evict report "$out" --samples 1 --policy full,oracle,streamingllm,h2o,snapkv,lookaheadkv,quest --budget 64 --out "$work/report.html"
{
  cat <<END
<!-- made by lab/reference/evaluate_reference.sh --docs -->

Every policy on the built-in model, measured on $(date -u +%Y-%m-%d) on $(nproc) cores of $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1 | grep . || uname -m),
commit $(git describe --always --dirty), in $took, at a load of $load at its end: where that is above the
cores, others ran as well, and times are rough. [report.html](report.html) is the same with charts, of seven policies at
a budget of 64; the page of all of them is what \`evict report\` makes of the run.

END
  cat "$out.md"
} >"$work/README.md"
size=$(cat "$work"/* | wc -c)
[ "$size" -lt 400000 ] || die "the report has $size bytes, want less than 400000"
mkdir -p lab/results/report
cp "$work"/* lab/results/report/
echo "lab/results/report: $size bytes"
