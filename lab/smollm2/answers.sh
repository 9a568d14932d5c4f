#!/usr/bin/env bash
# Lets SmolLM2-135M-Instruct answer the prompts of prompts.py, in pieces of 250, and packs each finished
# piece. Goes on where it was stopped, after the last answer. Answers are greedy, as in LookaheadKV
# (arXiv:2603.10899, section 4.1), and have at most 96 tokens: longer ones of this model mostly repeat themselves.
#
#   lab/smollm2/answers.sh --model MODEL [--out FOLDER] [--answers FOLDER] [--split train] [PIECE...]
#   lab/smollm2/answers.sh --model QWEN --mix mixed --count 4000 --longest 8192 --new 128 --answers lab/qwen2.5-coder/answers [PIECE...]
#
# The second makes those of Qwen2.5-Coder-0.5B-Instruct (a GGUF file): documents, code, conversations, tools.
# --out (out/smollm2) gets the prompts, the pair files and the packages; --answers
# (lab/smollm2/answers) the packed pieces. Without PIECEs, numbers from 0, all are done. TRAIN names the
# program train (bin/train) and PYTHON a Python with the package tokenizers
# (and gguf, where MODEL is a GGUF file).
set -euo pipefail
cd "$(dirname "$0")/../.."
here=lab/smollm2 model= out=out/smollm2 answers=$here/answers split=train mix=documents count='' longest=4096 new=96
python=${PYTHON:-python3}
while [[ ${1:-} == --* ]]; do
  case $1 in
    --model|--out|--answers|--split|--mix|--count|--longest|--new) printf -v "${1#--}" %s "${2:?$1: a value is missing}"; shift 2 ;;
    *) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$here/answers.sh"; [ "$1" = --help ] && exit; exit 2 ;;
  esac
done
[ -e "$model/tokenizer.json" ] || [[ $model == *.gguf && -e $model ]] || { echo "answers: --model: got '$model', want SmolLM2-135M-Instruct: its GGUF file or its folder" >&2; exit 2; }
train=$(realpath -e "${TRAIN:-bin/train}" 2>/dev/null) || { echo "answers: TRAIN: want the program train; make build makes bin/train" >&2; exit 2; }
model=$(realpath "$model")
case $split in
  train) count=${count:-7000} ;;
  validation|heldout) count=${count:-250} ;;
  *) echo "answers: --split: got '$split', want train, validation or heldout" >&2; exit 2 ;;
esac
pieces=$(((count + 249) / 250))
mkdir -p "$out/$split" "$answers"
out=$(realpath "$out") answers=$(realpath "$answers")
prompts=$out/$split/prompts.jsonl
[ -e "$prompts" ] || "$python" $here/prompts.py --model "$model" --split "$split" --count "$count" --mix "$mix" --longest "$longest" --cache "$out/sources" --out "$prompts"
for piece in ${*:-$(seq 0 $((pieces - 1)))}; do
  # The header of the pairs holds the name of the prompts as it is given: the same everywhere.
  (cd "$out/$split" && "$train" generate --model "$model" --prompts prompts.jsonl --samples "$count" --max-new "$new" --max-prompt "$longest" \
    --shards $pieces --shard "$piece/$pieces" --out pairs)
  "$python" $here/pairs.py pack "$(printf '%s/%s/pairs/pairs-%05d-of-%05d.jsonl' "$out" "$split" "$piece" $pieces)" "$(printf '%s/%s-%03d.bin' "$answers" "$split" "$piece")"
done
