#!/usr/bin/env bash
# The first hour of one who has never seen this: types the commands of README.md and of the three paths, docs/serve.md,
# docs/compare.md and docs/train.md, one block after the other, and prints what each took and the last line that it said.
#
#   ./lab/first_hour.sh MODEL                          # serve and compare, with the programs of bin/
#   ./lab/first_hour.sh --clone MODEL                  # a fresh clone: README's first command, README, and all three paths
#   ./lab/first_hour.sh --archive FILE MODEL           # the same in an unpacked release of scripts/release.sh
#   ./lab/first_hour.sh --clone --cold MODEL serve     # with empty caches of Go, and one page, or several (README, serve, compare, train)
#
# MODEL is a folder, a GGUF file, a short name or a name on the Hugging Face hub. README's first command has SmolLM2 of its own.
# Each page must end in what it promises: "train" in an adapter under which the full cache's answers are likelier than under
# SnapKV. README's second command, the tests, is left to .ci/run. Other ways to install are install.sh's, beside this one.
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"

clone='' archive='' cold=''
while [ $# -gt 0 ]; do
  case $1 in
    --clone) clone=yes ;;
    --cold) cold=yes ;;
    --archive)
      archive=$(absolute "${2:?--archive: want a file}")
      [ -f "$archive" ] || die "$archive: no such archive"
      shift
      ;;
    -h | --help) sed -n '2,/^set/{/^# \{0,1\}/s///p}' "$root/lab/first_hour.sh"; exit ;;
    -*) die "unknown argument $1" ;;
    *) break ;;
  esac
  shift
done
[ $# -ge 1 ] || die "want a model: a folder, a file, a short name, or a name on the Hugging Face hub"
[ -z "$clone" ] || [ -z "$archive" ] || die "want --clone or --archive, not both"
MODEL=$1
shift
[ ! -e "$caller/$MODEL" ] || MODEL=$(absolute "$MODEL")
if [ $# = 0 ]; then
  set -- serve compare
  [ -z "$clone$archive" ] || set -- README serve compare train
fi
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT # Go's caches are read-only
trap 'exit 130' INT TERM
output=$work/output
export MODEL

now() { date +%s%N; }
took() { local ms=$((($(now) - $1) / 1000000)); [ $ms -ge 60000 ] && duration $((ms / 1000)) || printf '%d.%d s' $((ms / 1000)) $((ms % 1000 / 100)); }
row() { # WHAT COMMAND TIME LAST
  printf '| %s | `%s` | %s | %s |\n' "$1" "$(cut -c1-60 <<<"${2//|/\\|}")" "$3" "${4//|/\\|}"
}
last() { grep -v '^ *$' "$output" | tail -n 1 | cut -c1-100; }

# first types README's first command, and says when the first answer stood there, too.
first() { # COMMAND
  local start answer='' line headings=0
  start=$(now)
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$output"
    [[ $line != '== evict run'* ]] || headings=$((headings + 1))
    # The second question begins when the first has its answer.
    if [ -z "$answer" ] && [ $headings = 2 ]; then
      answer=$(took "$start")
    fi
  done < <(bash -euo pipefail -c "$1" 2>&1 </dev/null || echo "first command failed: $1")
  ! grep -q '^first command failed' "$output" || { cat "$output" >&2; die "README's first command failed"; }
  grep -q '^With a tenth of its cache the model found' "$output" || { cat "$output" >&2; die "README's first command says nothing of needles"; }
  row "first answer" "$1" "$answer" ""
  row "all of it" "$1" "$(took "$start")" "$(grep '^With a tenth' "$output" | cut -c1-100)"
}

printf '| page | command | time | last line |\n|:---|:---|---:|:---|\n'
begin=$SECONDS
if [ -n "$clone" ]; then
  if [ -n "$cold" ]; then
    export GOCACHE=$work/go/build GOMODCACHE=$work/go/modules
  fi
  command=$(sed -n 's/^git clone ADDRESS \(.*[^ ]\)  # .*/git clone ADDRESS \1/p' README.md)
  [ -n "$command" ] || die "README.md has no command that begins with git clone ADDRESS"
  cd "$work"
  first "${command/ADDRESS/"$root"}"
  cd glimpse
elif [ -n "$archive" ]; then
  start=$(now)
  mkdir "$work/unpacked"
  tar -xzf "$archive" -C "$work/unpacked"
  cd "$work"/unpacked/*
  row "release" "tar -xzf $(basename "$archive")" "$(took "$start")" ""
  first "./scripts/smollm2.sh"
else
  [ -x "$root/bin/evict" ] || die "bin/evict is missing: make build"
  cd "$work"
  mkdir out
  ln -s "$root/bin" "$root/scripts" "$root/README.md" .
  cp -r "$root/docs" . # texts to try policies on
fi
export PATH=$PWD/bin:$PATH

# likelier tells whether the full cache's answers are likelier under one policy than under another at a budget, by the rows of an evaluation.
likelier() { # FOLDER POLICY THAN BUDGET
  awk -v a="$2" -v b="$3" -v budget="\"budget\":\"$4\"" '
    /"groups":/ || !index($0, budget) { next }
    match($0, /"policy":"[^"\/]*/) { name = substr($0, RSTART + 10, RLENGTH - 10) }
    match($0, /"nll":[0-9.e+-]+/) { nll[name] = substr($0, RSTART + 6, RLENGTH - 6) + 0 }
    END { exit !(a in nll && b in nll && nll[a] < nll[b]) }' "$1/metrics.json"
}

for page; do
  file=docs/$page.md
  [ "$page" != README ] || file=README.md
  [ -e "$file" ] || die "$file does not exist"
  all=$(blocks "$file")
  start_of_page=$(now)
  for at in $(sed -n 's/^run:\([0-9]*\):.*/\1/p' <<<"$all" | sort -nu); do
    lines=$(sed -n "s/^run:$at://p" <<<"$all")
    start=$(now)
    bash -euo pipefail -c "$lines" >"$output" 2>&1 </dev/null || { cat "$output" >&2; die "$file:$at failed: $lines"; }
    row "$page" "$(grep -vE '^(MODEL=|mkdir)' <<<"$lines" | head -n 1)" "$(took "$start")" "$(last)"
    [ -z "${GLIMPSE_TRANSCRIPT:-}" ] || { printf '$ %s\n' "$lines"; cat "$output"; } >>"$GLIMPSE_TRANSCRIPT"
  done
  verdict=''
  if [ "$page" = train ]; then
    likelier out/trained-eval lookaheadkv snapkv 25% || { cat "$output" >&2; die "docs/train.md: the adapter is not better than SnapKV at 25%"; }
    verdict="the adapter is better than SnapKV at 25%"
  fi
  row "$page" "the whole page" "$(took "$start_of_page")" "$verdict"
done
echo
echo "all of it in $(duration $((SECONDS - begin)))"
