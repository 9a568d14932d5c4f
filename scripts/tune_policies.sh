#!/usr/bin/env bash
# Chooses the observation window and the pooling kernel of the window policies for
# the built-in model on the validation split, never on the test split: prints the
# mean accuracy over all tasks at budgets 32, 64, 96 and 128, and their mean, for
# each setting. rocketkv's kernel is the paper's, and rocketkv-mt, which is rocketkv
# in a first turn, takes its window. The best ones are model/builtin/reference/glimpse_policies.json.
set -euo pipefail
cd "$(dirname "$0")/.."
samples=${SAMPLES:-32}
mkdir -p bin
go build -o bin/evict ./cmd/evict
results=$(mktemp)
trap 'rm -f "$results"' EXIT
printf '%-10s %6s %6s   %6s %6s %6s %6s   %6s\n' policy window kernel 32 64 96 128 mean
for policy in snapkv pyramidkv laq laq++ speckv rocketkv; do
  kernels="1 3 7"
  [ $policy != rocketkv ] || kernels="7 63"
  for window in 8 16 32; do
    for kernel in $kernels; do
      ./bin/evict eval --policy "$policy" --split validation --samples "$samples" --timings=false --json \
        --set "$policy.window=$window" --set "$policy.kernel=$kernel" >"$results" 2>/dev/null
      awk -v p="$policy" -v w="$window" -v k="$kernel" '
        match($0, /"budget":[0-9]+/)            { b = substr($0, RSTART + 9, RLENGTH - 9) }
        match($0, /"accuracy":[0-9.e-]+/)       { sum[b] += substr($0, RSTART + 11, RLENGTH - 11); n[b]++ }
        END { for (b in n) all += sum[b] / n[b]
              printf "%-10s %6d %6d   %6.1f %6.1f %6.1f %6.1f   %6.1f\n", p, w, k,
                100*sum[32]/n[32], 100*sum[64]/n[64], 100*sum[96]/n[96], 100*sum[128]/n[128], 100*all/4 }' "$results"
    done
  done
done
