#!/usr/bin/env bash
# The whole of Glimpse in one run: builds both binaries, lets the built-in model
# answer prompts, trains a LookaheadKV and a Judge Q adapter on its answers, and
# measures the eviction policies at four budgets with the adapters just trained and
# with the shipped ones.
#
#   ./scripts/demo.sh [--quick] [--out DIR] [--steps N] [--pairs N] [--samples N]
#
# --quick    a shortened version with some of the policies and no times, to see that everything works;
#            its adapters are poor
# --out      folder for the results (out/demo)
# --steps    optimiser steps of the training
# --pairs    prompts that the model answers to train on
# --samples  prompts per task in the evaluation
set -euo pipefail
source "$(dirname "$0")/common.sh"

usage() { sed -n '2,/^set/{/^# \{0,1\}/s///p}' "$root/scripts/demo.sh"; }

out=$root/out/demo
quick=no steps='' pairs='' samples=''
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=yes ;;
    --out | --steps | --pairs | --samples)
      [ $# -gt 1 ] || die "$1: value missing"
      case $1 in
        --out) out=$(absolute "$2") ;;
        *)
          [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1: got '$2', want a whole number above 0"
          declare "${1#--}=$2"
          ;;
      esac
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) die "unknown argument '$1'; see --help" ;;
  esac
  shift
done
policies=all measured=all
if [ $quick = yes ]; then
  : "${steps:=10}" "${pairs:=64}" "${samples:=2}"
  policies=full,oracle,snapkv,laq,d2o,rocketkv,judgeq,lookaheadkv
  measured=none
else
  : "${steps:=200}" "${pairs:=2048}" "${samples:=10}"
fi

# A folder is only ever replaced if an earlier demo made it, and only by a finished one.
readonly mark=demo.txt
if [ -e "$out" ] && [ ! -e "$out/$mark" ]; then
  [ -d "$out" ] && [ -z "$(ls -A "$out")" ] || die "$out exists and is not the result of a demo; choose another --out"
fi
mkdir -p "$(dirname "$out")"
work=$(mktemp -d "$(dirname "$out")/.demo.XXXXXX")
mkdir "$work/new"
cleanup() {
  if [ -e "$work/old" ] && [ ! -e "$out" ]; then mv "$work/old" "$out"; fi
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

number=0
times=()
step() { # TITLE COMMAND...
  number=$((number + 1))
  local title=$1 start=$SECONDS
  shift
  printf '\n[%d/4] %s\n' $number "$title"
  "$@"
  times+=("$(printf '%-36s %s' "$title" "$(duration $((SECONDS - start)))")")
}

build() { build_programs; }

generate() { "$root/bin/train" generate --samples "$pairs" --max-new 16 --seed 1 --out pairs.jsonl; }

# Both kinds get the same samples and the same number of steps.
train_both() {
  sed -e "s/\"steps\": [0-9]*/\"steps\": $steps/" -e 's/"tasks":/"data": "pairs.jsonl",\n  &/' \
    "$root/scripts/demo_adapters.json" >train.json
  "$root/bin/train" run train.json --log steps.jsonl
}

evaluate() {
  "$root/bin/evict" eval --policy $policies --budget 32,64,96,128 --tokens 512 --samples "$samples" --seed 1 --times $measured \
    --adapter shipped --adapter fresh=lookaheadkv --adapter fresh=judgeq \
    --json-out results.json --table-out table.md --plot accuracy.png --needle-plot needle.png >"$work/table.txt"
}

processor() { sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1 | grep . || uname -m; }

facts() {
  echo "date: $(date -u +%Y-%m-%d)"
  echo "commit: $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)"
  echo "go: $(cd "$root" && go env GOVERSION)"
  echo "machine: $(nproc) cores of $(processor)"
  echo "recipe: $pairs samples, $steps steps, $samples prompts per task"
  echo "time: $(duration $SECONDS)"
}

SECONDS=0
step "set up and build" build
cd "$work/new"
step "the model answers $pairs prompts" generate
step "train both adapters, $steps steps" train_both
step "measure the policies" evaluate
facts >$mark
cd "$root"
if [ -e "$out" ]; then mv "$out" "$work/old"; fi
mv "$work/new" "$out"

echo
cat "$work/table.txt"
echo
printf '%s\n' "${times[@]}"
printf '%-36s %s\n' "the whole demo" "$(duration $SECONDS)"
cat <<END

"shipped" are the adapters that come with the built-in model, "fresh" those trained just now.

  $out/table.md       the table above
  $out/results.json   the same as JSON
  $out/accuracy.png   accuracy against budget
  $out/needle.png     needles found, by depth and prompt length
  $out/lookaheadkv    the fresh adapters; use one as
  $out/judgeq           ./bin/evict run --example section --adapter $out/lookaheadkv
END
