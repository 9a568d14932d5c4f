#!/usr/bin/env bash
# Trains the adapters and the ablations of the papers on the reference model, measures every policy, and
# checks the papers' claims (lab/reference/configs/README.md). Each stage goes on where it was stopped; one that is
# finished is not done again. lab/reference/update_results.sh puts what is finished into lab/results/claims.md.
#
#   ./lab/reference/reference_results.sh [--model FOLDER] [--draft FOLDER] [--out DIR] [--stage NAME] [--quick]
#
# --model   model folder; without it the built-in model
# --draft   model that drafts for speckv; without it the built-in model's companion, or else the model itself
# --out     folder for pairs, adapters, runs and tables (out/results)
# --stage   this stage alone: pairs, rates, adapters, ablations, pooling, test_512, test_2048,
#           ablations_512, ablations_2048, compositions, merging, latency or claims. Where the stages rates,
#           adapters and pooling have not run, the others take what these found and made for the built-in model
# --quick   a few samples of everything, to see that it works; its numbers mean nothing
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

model='' draft='' out=$root/out/results only='' quick=''
while [ $# -gt 0 ]; do
  case $1 in
    --model) model=$(absolute "${2:?--model: want a folder}"); shift ;;
    --draft) draft=$(absolute "${2:?--draft: want a folder}"); shift ;;
    --out) out=$(absolute "${2:?--out: want a folder}"); shift ;;
    --stage) only=${2:?--stage: want a name}; shift ;;
    --quick) quick=yes ;;
    *) die "unknown argument $1" ;;
  esac
  shift
done
scripts/setup.sh
go build -o bin/ ./cmd/...
configs=$root/lab/reference/configs
source lab/reference/stages.sh
mkdir -p "$out/pairs"
cd "$out"

# What is there was made with this model: another one needs another folder.
identity=$({ [ -z "$model" ] || (cd "$model" && cat config.json model.safetensors); echo "$quick"; } | sha256sum | cut -c1-16)
[ ! -e model.sha256 ] || [ "$(cat model.sha256)" = "$identity" ] || die "$out is of another model, or of --quick: want another --out"
echo "$identity" >model.sha256

if [ -n "$quick" ]; then
  many=48 some=16 validation=16 samples=2
else
  many=10240 some=2048 validation=256 samples=''
fi

generate() { # FILE TOKENS SAMPLES [FLAG...]
  [ -e "pairs/$1" ] || "$train" generate --model "$model" --task all --tokens "$2" --samples "$3" --max-new 64 --seed 1 --resume --out "pairs/$1" "${@:4}"
}

pairs() {
  generate 256.jsonl 256 "$many"
  generate 512.jsonl 512 "$many"
  generate 1024.jsonl 1024 "$((2 * some))"
  generate 2048.jsonl 2048 "$some"
  generate source.jsonl 512 "$many" --responses source
  generate validation.jsonl 512 "$validation" --split validation
}

# Validation is as long as the run of the script.
trained() { run "$1" "$2" --set "train.validation.samples=$validation" "${@:3}"; }

rates() {
  trained sweep rate_lookaheadkv
  trained sweep rate_judgeq
}

# least is the learning rate of the least loss, which sweep.json has first.
least() { # SWEEP
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["learning_rate"])' "$1/sweep.json"
}

# rate is the learning rate that the stage rates has found, or has found for the built-in model.
rate() { # KIND
  if [ -e "done/rates" ] || [ -n "$model" ]; then
    least "rate_$1"
  else
    sed -n "s/.*name: $1,.*learning_rate: \([0-9.]*\),.*/\1/p" "$configs/adapters.yaml"
  fi
}

adapters() {
  trained run adapters --set "adapters.0.learning_rate=$(rate lookaheadkv)" --set "adapters.1.learning_rate=$(rate judgeq)"
}

ablations() {
  local lookahead judge
  lookahead=$(rate lookaheadkv) judge=$(rate judgeq)
  trained sweep modules --set "adapters.0.learning_rate=$lookahead"
  trained sweep rate_rows
  trained sweep rows --set "adapters.0.learning_rate=$(least rate_rows)"
  trained sweep soft_tokens --set "adapters.0.learning_rate=$judge"
  trained run start --set "adapters.0.learning_rate=$lookahead" --set "adapters.1.learning_rate=$lookahead" \
    --set "adapters.2.learning_rate=$judge" --set "adapters.3.learning_rate=$judge"
  trained run source --set "adapters.0.learning_rate=$lookahead" --set "adapters.1.learning_rate=$judge"
  trained run short --set "adapters.0.learning_rate=$lookahead" --set "adapters.1.learning_rate=$judge"
}

# adopt takes the adapters of the stage adapters, or what it made for the built-in model.
learned=()
adopt() {
  local from=$out/adapters/adapters
  if [ ! -e done/adapters ]; then
    [ -z "$model" ] || die "$out has no adapters of $model: run --stage adapters first"
    from=$root/adapters/reference
  fi
  learned=(--adapter "lookaheadkv=$from/lookaheadkv" --adapter "judgeq=$from/judgeq")
}

# measured is measure with as many samples as --quick wants.
measured() { # NAME [FLAG...]
  measure "$1" --plot "$1.svg" ${samples:+--samples "$samples"} "${@:2}"
}

pooling() {
  adopt
  measured pooling "${learned[@]}"
  best pooling | sed 's/^\([^ ]*\) /--set \1./' >kernels
}

# pooled adopts the adapters with the pooling that was chosen for them; the built-in model's have it in them.
chosen=()
pooled() {
  adopt
  [ -e kernels ] || [ ! -e done/adapters ] || die "$out has adapters whose pooling was not chosen: run --stage pooling first"
  [ ! -e kernels ] || read -r -d '' -a chosen <kernels || true
}

patterns() {
  [ -e pattern ] || "$evict" patterns --model "$model" --sink 4 --recent 24 --out pattern
}

drafts=()
[ -n "$model" ] || drafts=(--draft "${draft:-shipped}")
[ -z "$draft" ] || drafts=(--draft "$draft")

every() { patterns; pooled; measured "$1" "${learned[@]}" "${drafts[@]}" --pattern pattern "${chosen[@]}"; }
test_512() { every test_512; }
test_2048() { every test_2048; }
compositions() { every compositions; }
merging() { measured merging; }
latency() { adopt; measured latency "${learned[@]}" "${drafts[@]}"; }

ablated=(--adapter modules --adapter rows --adapter soft_tokens)
for name in start/{lookaheadkv,judgeq}-{noise,end} source/{lookaheadkv,judgeq}-source short/{lookaheadkv,judgeq}-256; do
  ablated+=(--adapter "${name#*/}=${name%/*}/adapters/${name#*/}")
done
ablations_512() { measured ablations_512 "${ablated[@]}"; }
ablations_2048() { measured ablations_2048 "${ablated[@]}"; }

claims() {
  local name
  for name in test_512 test_2048 ablations_512 ablations_2048 compositions merging latency; do
    python3 "$root/lab/reference/reference_claims.py" . "$name" >"$name.md"
    echo "$name: $(grep 'claims hold' "$name.md" || echo "no claims")"
  done
}

for name in pairs rates adapters ablations pooling test_512 test_2048 ablations_512 ablations_2048 compositions merging latency claims; do
  stage "$name"
done
