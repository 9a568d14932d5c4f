#!/usr/bin/env bash
# Measures every policy on the built-in model as configs/reference.yaml says: needles by length and
# depth, two questions to one context, copies and chains with what is kept of them,
# eviction in the middle of an answer, times and memory. Makes a run folder and the
# report of it.
#
#   ./scripts/evaluate_reference.sh [--out FOLDER] [--resume] [--docs]
#
# --out     folder of the run (out/reference)
# --resume  go on with a run that was stopped
# --docs    put the report into docs/report, too, which the repository keeps
set -euo pipefail
source "$(dirname "$0")/common.sh"

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
SECONDS=0
./bin/evict eval --config configs/reference.yaml --out "$out" $again --table-out "$out.txt"
echo "measured in $(duration $SECONDS): $out.txt"
