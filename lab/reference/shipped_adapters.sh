#!/usr/bin/env bash
# Trains the adapters that come with the built-in model by the full recipe
# (lab/reference/configs/README.md), and puts them in their place, adapters/reference. About two
# hours on 2 cores; goes on where it was stopped.
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

for stage in pairs rates adapters pooling; do lab/reference/reference_results.sh --stage $stage; done
# The old ones are replaced when both new ones are there.
made=$root/out/results/adapters/adapters
for kind in lookaheadkv judgeq; do [ -e "$made/$kind/glimpse.json" ] || die "$made/$kind is missing"; done
for kind in lookaheadkv judgeq; do
  kernel=$(sed -n "s/^--set $kind.kernel=//p" out/results/kernels)
  ./bin/train export "$made/$kind" "adapters/reference/$kind" --replace --registry adapters --pooling "${kernel:?out/results/kernels has none of $kind}"
done
go build -o bin/ ./cmd/... # with the new adapters in them
echo "shipped_adapters: wrote adapters/reference; every step's losses are in out/results/adapters/steps.jsonl"
