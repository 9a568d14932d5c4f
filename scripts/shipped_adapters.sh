#!/usr/bin/env bash
# Trains the adapters that ship with the built-in model, and puts them in their
# place, model/builtin/adapters. The recipe is scripts/shipped_adapters.json: both
# kinds, in one pass over the same samples. Its 1,600 steps of 16 took 13 minutes on
# 2 cores.
set -euo pipefail
source "$(dirname "$0")/common.sh"

scripts/setup.sh
go build -o bin/ ./cmd/...

# A run that was stopped goes on where it was. The old adapters are replaced when
# both new ones are there.
work=$root/out/shipped_adapters
mkdir -p "$work"
start=$SECONDS
(cd "$work" && "$root/bin/train" run "$root/scripts/shipped_adapters.json" --replace \
  --checkpoint run.state --resume --log steps.jsonl)
for kind in lookaheadkv judgeq; do
  rm -rf "model/builtin/adapters/$kind"
  cp -r "$work/$kind" "model/builtin/adapters/$kind"
done
rm "$work/run.state"
go build -o bin/ ./cmd/... # with the new adapters in them
echo "shipped_adapters: wrote model/builtin/adapters in $(duration $((SECONDS - start))); every step's losses are in out/shipped_adapters/steps.jsonl"
