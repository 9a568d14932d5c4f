#!/usr/bin/env bash
# The papers' claims on a real model: trains the adapters of SmolLM2-135M-Instruct on its own answers
# (answers/*.bin), measures every policy, and writes lab/results/smollm2.md, whose first table README.md has, too.
# Each stage goes on where it was stopped; one that is finished is not done again. Many hours on 2 cores: the adapters
# alone take about three.
#
#   lab/smollm2/results.sh [--out DIR] [--stage NAME] [--longbench DIR] [--rest] [--quick]
#
# --out        folder for pairs, adapters and runs (out/smollm2)
# --stage      this stage alone: pairs, rates, adapters, pooling, settings, needle, length, ruler, longbench,
#              documents, longbench-budgets, documents-budgets, turns, caches-TYPE and news-TYPE (of the cache),
#              latency, ablations or page
# --longbench  folder with LongBench's files, NAME.jsonl; without it that stage is left out
# --rest       only what measured/ lacks, with the adapters that ship: a machine goes on with what others have measured
# --quick      a few samples of everything, to see that it works, and the page in --out; its numbers mean nothing
#
# PYTHON names a Python 3.11 with the packages tokenizers and gguf (python3).
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

out=$root/out/smollm2 only='' longbench='' quick='' rest=''
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$(absolute "${2:?--out: want a folder}"); shift ;;
    --stage) only=${2:?--stage: want a name}; shift ;;
    --longbench) longbench=$(absolute "${2:?--longbench: want a folder}"); shift ;;
    --quick) quick=yes ;;
    --rest) rest=yes ;;
    *) die "unknown argument $1" ;;
  esac
  shift
done
model=$(scripts/smollm2.sh --model)
scripts/setup.sh
go build -o bin/ ./cmd/...
here=$root/lab/smollm2 python=${PYTHON:-python3} configs=$root/lab/smollm2/configs
source lab/reference/stages.sh
mkdir -p "$out"
cd "$out"
[ ! -e quick ] || [ "$(cat quick)" = "${quick:-no}" ] || die "$out: quick is $(cat quick), got ${quick:-no}: want another --out"
echo "${quick:-no}" >quick
types=(float32 bf16 q8_0 fp8 q5_1 q4_1 kivi4 q4_0) # of caches
few=() depths=() short=() part='' page=$root/lab/results/smollm2.md
if [ -n "$quick" ]; then
  few=(--samples 1 --budget 10% --max-new 8) depths=(--task-option niah.depths=2)
  short=(--set epochs=0 --set train.steps=2 --set train.batch=2 --set train.validation.samples=2)
  page=$out/smollm2.md
fi

if [ -n "$rest" ]; then
  mkdir -p done
  touch done/{adapters,pooling}
  [ -e shipped ] || cp -r "$root/adapters/smollm2-135m-instruct" shipped
  [ -e kernels ] || cp "$here/measured/kernels" .
  if [ -e "$here/measured/chosen" ]; then
    cp "$here/measured/chosen" .
    touch done/settings
  fi
  for name in rates {longbench,documents}-budgets latency ablations ${types[@]/#/caches-} ${types[@]/#/news-}; do [ ! -e "$here/measured/$name.xz" ] || touch "done/$name"; done
fi

# prompts makes the prompts of a split anew, and joined the pair files of answers to them.
prompts() { # SPLIT COUNT
  [ -e "$1/prompts.jsonl" ] || { mkdir -p "$1" && "$python" "$here/prompts.py" --model "$model" --split "$1" --count "$2" --cache sources --out "$1/prompts.jsonl"; }
}
joined() { # FOLDER SPLIT LONGEST
  "$python" "$here/pairs.py" join --model "$model" --prompts "$2/prompts.jsonl" --max-prompt "$3" --out "pairs/$1" "$here/answers/$2"-*.bin
}

pairs() {
  prompts train 7000
  prompts validation 250
  joined train train 2048
  joined validation validation 2048
  joined short train 512
  joined short-validation validation 512
}

rates() { run run rates "${short[@]}"; }
adapters() { run run adapters "${short[@]}"; }

# What is measured is what ships: the adapters in bf16, with the pooling that was chosen.
learned=(--adapter shipped/lookaheadkv --adapter shipped/judgeq)

# policies prints those of a configuration, a line each.
policies() { sed -n 's/^  - \([a-z].*\)/\1/p' "$configs/$1.yaml" | grep -v '^task'; } # NAME

# validated prints the best settings of policies on the validation prompts: those of a configuration, and documents.
validated() { # NAME [FLAG...]
  prompts validation 250
  measure "$1" "${@:2}" "${few[@]}" "${depths[@]}"
  measure "$1-documents" --config "$configs/validation.yaml" --policy "$(policies "$1" | paste -sd,)" "${@:2}" "${few[@]}"
  best "$1" "$1-documents"
}

pooling() {
  validated pooling --adapter adapters/adapters/lookaheadkv --adapter adapters/adapters/judgeq >kernels
  exported adapters/adapters/lookaheadkv lookaheadkv
  exported adapters/adapters/judgeq judgeq
}

# exported makes what ships of an adapter.
exported() { # FOLDER NAME
  local kind=$2
  [ "$kind" = judgeq ] || kind=lookaheadkv
  "$train" export "$1" "shipped/$2" --dtype bf16 --pooling "$(sed -n "s/^$kind kernel=//p" kernels)" --replace
}
settings() { validated settings >chosen.new && mv chosen.new chosen; }

# every measures the policies of a configuration, and those of them that settings has tuned once more with what
# was chosen, and the adapters with their pooling.
every() { # NAME [FLAG...]
  local tuned='' names
  if [ -s chosen ]; then
    tuned=$(awk '{ line = $1 "(" $2; for (i = 3; i <= NF; i++) line = line "," $i; print line ")" }' chosen)
  else
    echo "$1: stage settings has chosen none: policies have the settings of their papers alone" >&2
  fi
  names=$(policies "$1" |
    { while read -r policy; do echo "$policy"; awk -v name="$policy(" 'index($0, name) == 1' <<<"$tuned"; done })
  [ -z "$rest" ] || names=$(tr '\n' '\0' <<<"$names" | xargs -0 "$python" "$here/measured.py" lacking "$1${part:+.${part/\//of}}")
  [ -n "$names" ] || return 0
  local kind adapters=() # those that one of the policies takes
  for kind in lookaheadkv judgeq; do
    ! grep -q "^$kind" <<<"$names" || adapters+=(--adapter "shipped/$kind")
  done
  measure "$1" ${part:+--shard "$part"} --policy "$(paste -sd, <<<"$names")" "${adapters[@]}" "${few[@]}" "${@:2}"
}

# parts measures the prompts of a long stage part by part: each is done and kept by itself.
parts() { # NAME COUNT [FLAG...]
  local i part
  for ((i = 0; i < $2; i++)); do
    part=$i/$2
    stage "$1.${i}of$2" every "$1" "${@:3}"
  done
}

# A map of every policy and budget would be too large: it has a few policies at one budget.
needle() {
  every needle "${depths[@]}"
  "$evict" eval --config "$configs/needle.yaml" --model "$model" --out needle-map --resume --replace "${learned[@]}" \
    --policy full,streamingllm,snapkv,laq,judgeq,lookaheadkv --budget 10% "${few[@]}" "${depths[@]}" --needle-plot needle-map.svg >/dev/null
}
length() {
  [ -e shipped/short ] || exported rates/adapters/look-3e-3 short
  every length "${depths[@]}" --adapter short=shipped/short
}
ruler() {
  measure mastered "${few[@]}"
  local tasks=ruler
  [ -n "$quick" ] || tasks=$(mastered mastered)
  every ruler --task "$tasks" --task-option ruler.lengths=2048,4096
}

# mastered prints the tasks of a run that the full cache answers at least half of, comma-separated.
mastered() { # RUN
  python3 - "$1/predictions.jsonl" <<'END'
import collections, json, sys
scores = collections.defaultdict(list)
for line in open(sys.argv[1]):
    p = json.loads(line)
    scores[p["task"]].append(p["measures"][p["metric"]])
print(*(t for t, v in scores.items() if sum(v) / len(v) >= 0.5), sep=",")
END
}
longbench() { [ -z "$longbench" ] || parts longbench 8 --data "$longbench"; }
documents() {
  prompts heldout 250
  parts documents 8
}
# The other budgets of both, on some of their prompts.
longbench-budgets() { measure longbench-budgets "${learned[@]}" "${few[@]}" --data "$longbench"; }
documents-budgets() {
  prompts heldout 250
  measure documents-budgets "${learned[@]}" "${few[@]}"
}
turns() { every turns; }

# caches measures over one type of cache.
caches() { # TYPE
  commit "caches-$1"
  "$evict" eval --config "$configs/caches.yaml" --model "$model" --out "caches-$1" --resume --replace --adapter shipped/lookaheadkv "${few[@]}" "${depths[@]}" --cache-dtype "$1" >/dev/null
}
# news measures some of that with LongBench.
news() { # TYPE
  commit "news-$1"
  "$evict" eval --config "$configs/news.yaml" --model "$model" --out "news-$1" --resume --replace --adapter shipped/lookaheadkv "${few[@]}" --data "$longbench" --cache-dtype "$1" >/dev/null
}
latency() { measure latency "${learned[@]}" "${few[@]}"; }

ablations() {
  run sweep rows_modules "${short[@]}"
  measure ablations --adapter rows_modules --set "lookaheadkv.$(sed -n 's/^lookaheadkv //p' kernels)" "${few[@]}" "${depths[@]}"
}

page() {
  if [ -z "$quick" ]; then
    "$python" "$here/measured.py" keep .
    for file in kernels chosen; do [ ! -s $file ] || cp $file "$here/measured/"; done
  fi
  "$python" "$here/results.py" . "$page"
  [ -n "$quick" ] || sed -n '/^## At a glance/,/^## The/{/^|/p}' "$page" | (cd "$root" && replace_section README.md smollm2)
}

for name in pairs rates adapters pooling settings needle length ruler longbench documents longbench-budgets documents-budgets turns caches news latency ablations page; do
  case $name in
    caches) for type in "${types[@]}"; do stage "caches-$type" caches "$type"; done ;;
    longbench-budgets) [ -z "$longbench" ] || stage "$name" ;;
    news) [ -z "$longbench" ] || for type in bf16 q8_0 kivi4 q4_0; do stage "news-$type" news "$type"; done ;;
    *) stage "$name" ;;
  esac
done
