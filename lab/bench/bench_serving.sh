#!/usr/bin/env bash
# Requests and tokens per second of "evict serve" in a fixed memory of caches, under the full cache and under budgets,
# at several numbers of sessions; then the same document asked with and without the shared prefix.
#
#   ./lab/bench/bench_serving.sh [--model FILE] [--memory SIZE] [--sessions 8,32,128] [--rounds N]
#   ./lab/bench/bench_serving.sh --documents CHARACTERS [--memory SIZE] [--sessions 32] [--policies A,B] [--peer-document URL]
#   ./lab/bench/bench_serving.sh --peer URL|--peer-document URL [--peer-model NAME] [--model FILE] [--rounds N]
#
# With --peer nothing but one sequence at a time is measured, in turns with another server of OpenAI's API that answers the
# same prompts, such as "llama-server -m FILE --port 8090 -np 1 -c 8192 --jinja" at http://127.0.0.1:8090, with the same
# file, on the same machine and as many threads. With --peer-document URL it is a document that 8 clients ask about: that server needs a slot for each
# ("-np 8 -c 49152").
#
# With --documents every session has one of its own, of so many characters, which it asks again and again, in turns with all others: under "full" those that
# fit the memory are shared prefixes, under policies all are compressed contexts. First everybody asks once, then on.
#
# The model is SmolLM2-135M-Instruct unless one is named; the text is that of docs/. One line of JSON per case, in turns
# of all cases, medians last. Nothing else should run meanwhile. About 10 minutes on 2 cores.
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

model='' memory=256MiB sessions=8,32,128 rounds=1 peer='' peer_document='' peer_model='' documents='' policies=full,lookaheadkv:25%,lookaheadkv:10%
while [ $# != 0 ]; do
  case $1 in
    --model) model=$2 ;;
    --memory) memory=$2 ;;
    --sessions) sessions=$2 ;;
    --rounds) rounds=$2 ;;
    --peer) peer=${2%/} ;;
    --peer-document) peer_document=${2%/} ;;
    --peer-model) peer_model=$2 ;;
    --documents) documents=$2 ;;
    --policies) policies=$2 ;;
    *) die "unknown argument $1" ;;
  esac
  shift 2
done
[ -n "$model" ] || model=$(scripts/smollm2.sh --model)
go build -o bin/ ./cmd/evict
work=$(mktemp -d)
server=''
stop() {
  [ -z "$server" ] || { kill -TERM "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; }
  server=''
}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
go -C lab build -o "$work/servebench" ./bench/servebench
text=$(printf '%s\n' docs/*.md | paste -sd,)

start() { # FLAG...
  : >"$work/log"
  bin/evict serve --model "$model" --listen 127.0.0.1:0 --served-model-name bench --queue 4096 "$@" 2>"$work/log" &
  server=$!
  for _ in $(seq 600); do
    address=$(sed -n 's/.*msg=serving address=\([^ ]*\).*/\1/p' "$work/log")
    [ -z "$address" ] || return 0
    kill -0 "$server" 2>/dev/null || die "the server did not start: $(tail -n 3 "$work/log")"
    sleep 0.1
  done
  die "the server did not start"
}
bench() { "$work/servebench" --text "$text" "$@"; }
ask() { bench --base-url "http://$address/v1" "$@"; }
case_() { # NAME JSON
  python3 -c 'import json,sys; print(json.dumps({"case": sys.argv[1], **json.loads(sys.argv[2])}))' "$1" "$2" | tee -a "$work/cases"
}

if [ -n "$peer" ]; then
  curl -sf --max-time 5 "$peer/v1/models" >/dev/null || die "--peer $peer: there is no server of OpenAI's API"
  start --memory 4GiB --prefix-cache 0 --max-num-seqs 1
  seed=0
  for ((round = 0; round < rounds; round++)); do
    for policy in full snapkv:50% snapkv:25% snapkv:10%; do
      seed=$((seed + 1)) # other prompts than before, which a server may remember
      one=(--clients 1 --requests 9 --characters 2000,4000,8000 --max-tokens 64 --seed $seed)
      case_ "peer" "$(bench --base-url "$peer/v1" --model "$peer_model" "${one[@]}")"
      case_ "$policy" "$(ask --model "bench@$policy" "${one[@]}")"
    done
  done
  stop
  rounds=0
fi
if [ -n "$documents" ]; then
  for n in ${sessions//,/ }; do
    one=(--clients "$n" --own --characters "$documents" --max-tokens 32)
    for policy in ${policies//,/ }; do
      context=() again=$((n / 2)) # none of it is there
      [ $policy = full ] || context=(--mark) again=$((2 * n))
      start --memory "$memory" --max-num-seqs 16 --cache-dtype bf16 --heads shipped
      case_ "$policy, $n documents" "$(ask --model "bench@$policy" "${one[@]}" "${context[@]}" --requests "$n")"
      case_ "$policy, $n documents, again" "$(ask --model "bench@$policy" "${one[@]}" "${context[@]}" --requests "$again")"
      stop
    done
    [ -z "$peer_document" ] || case_ "peer, $n documents" "$(bench --base-url "$peer_document/v1" --model "$peer_model" "${one[@]}" --requests "$n")"
  done
  peer_document='' rounds=0
fi
document=(--clients 8 --requests 100 --max-tokens 16)
if [ -n "$peer_document" ]; then
  curl -sf --max-time 5 "$peer_document/v1/models" >/dev/null || die "--peer-document $peer_document: there is no server of OpenAI's API"
  start --memory 4GiB --prefix-cache 0 --max-num-seqs 8 --heads shipped
  for ((round = 0; round < rounds; round++)); do
    one=("${document[@]}" --seed $((round + 1)))
    case_ "peer, a question alone" "$(bench --base-url "$peer_document/v1" --model "$peer_model" "${one[@]}" --characters 0)"
    case_ "a question alone" "$(ask --model bench@full "${one[@]}" --characters 0)"
    case_ "peer, a document" "$(bench --base-url "$peer_document/v1" --model "$peer_model" "${one[@]}" --characters 16000 --same)"
    for policy in lookaheadkv:25% lookaheadkv:10%; do
      case_ "$policy, a context" "$(ask --model "bench@$policy" "${one[@]}" --characters 16000 --same --mark)"
    done
    case_ "peer, the document again" "$(bench --base-url "$peer_document/v1" --model "$peer_model" "${one[@]}" --characters 16000 --same)"
    for policy in lookaheadkv:25% lookaheadkv:10%; do
      case_ "$policy, the context again" "$(ask --model "bench@$policy" "${one[@]}" --characters 16000 --same --mark)"
    done
  done
  stop
  rounds=0
fi
for ((round = 0; round < rounds; round++)); do
  for n in ${sessions//,/ }; do
    start --memory "$memory" --prefix-cache 0 --max-num-seqs 16
    for policy in full snapkv:50% snapkv:25% snapkv:10% lookaheadkv:25% lookaheadkv:10%; do
      case_ "$policy, $n sessions in $memory" "$(ask --model "bench@$policy" --clients "$n" --requests $((n < 24 ? 24 : n)) --characters 2000,4000 --max-tokens 64 --logprobs)"
    done
    stop
  done
  for share in 0 1GiB; do
    start --memory 4GiB --prefix-cache $share
    for policy in full lookaheadkv:25%; do
      case_ "$policy, a document asked 20 times, prefix cache $share" "$(ask --model "bench@$policy" --clients 1 --requests 20 --characters 8000 --max-tokens 32 --same)"
    done
    stop
  done
  # One document of about 4,000 tokens and 100 questions by 8 clients, of which the first compresses it.
  start --memory 4GiB --prefix-cache 0 --heads shipped
  case_ "questions alone" "$(ask --model bench@full "${document[@]}" --characters 0)"
  for policy in lookaheadkv:25% lookaheadkv:10%; do
    case_ "$policy, a context" "$(ask --model "bench@$policy" "${document[@]}" --characters 16000 --same --mark)"
    case_ "$policy, the context again" "$(ask --model "bench@$policy" "${document[@]}" --characters 16000 --same --mark)"
  done
  stop
  start --memory 4GiB --prefix-cache 1GiB
  case_ "full, the document, prefix cache 1GiB" "$(ask --model bench@full "${document[@]}" --characters 16000 --same)"
  case_ "full, the document again" "$(ask --model bench@full "${document[@]}" --characters 16000 --same)"
  stop
done
echo
python3 - "$work/cases" <<'END'
import collections, json, statistics, sys
cases = collections.defaultdict(list)
lines = [json.loads(line) for line in open(sys.argv[1])]
for c in lines:
    cases[c["case"]].append(c)
for a, b in zip(lines, lines[1:]):
    if a["case"] == "peer" and a["prompt_tokens"] != b["prompt_tokens"]:
        print(f"The peer counts {a['prompt_tokens']} tokens of prompts that are {b['prompt_tokens']} here: want the same file and chat template.\n")
print("| case | requests/s | tokens/s | TTFT p50 s | p99 | between tokens p50 ms | p99 | most | found of the prompts |")
print("|:---|---:|---:|---:|---:|---:|---:|---:|---:|")
for name, all in cases.items():
    m = lambda k: statistics.median(c[k] for c in all)
    print(f"| {name} | {m('requests_per_s'):.2f} | {m('tokens_per_s'):.1f} | {m('ttft_p50_s'):.2f} | {m('ttft_p99_s'):.2f} | {1000*m('itl_p50_s'):.0f} | {1000*m('itl_p99_s'):.0f} | {1000*m('itl_max_s'):.0f} | {100*m('cached_tokens')/m('prompt_tokens'):.0f}% |")
END
