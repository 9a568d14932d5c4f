#!/usr/bin/env bash
# Runs what the documents and the help texts tell people to run, in a fresh folder: every "sh"
# block of README.md, CONTRIBUTING.md, CHANGELOG.md, docs/*.md and configs/papers/README.md, and
# every example of every command's --help that is no line of those. Left out, and listed with the reason, are
#
#   - blocks below a line "<!-- not run: WHY -->", where WHY begins with "needs" (a GPU, the
#     hub, data, a server), "takes" (so long), or ".ci/run does";
#   - examples that name a model, a run or a bucket of the reader's own, as path/to/…, org/… or
#     s3://bucket/….
#
# A command in a block of another kind is a failure: it would be left out in silence. So is a
# file that a command leaves outside out/, which git ignores.
#
# Also checks that relative links of the documents lead to files and headings, that the
# README has at most 150 lines, that docs/papers.md lists every arXiv number that the code
# cites, and that nothing cites a paper by a file name of ours. One line per block and
# example, PASS, FAIL or SKIP.
#
#   ./scripts/check_readme.sh
#   ./scripts/check_readme.sh --twice  # then again in the same folder, the other way round
#   ./scripts/check_readme.sh --text   # without running anything
set -euo pipefail
source "$(dirname "$0")/common.sh"

text='' twice=''
case ${1:-} in
  '') ;;
  --twice) twice=yes ;;
  --text) text=yes ;;
  *) die "unknown argument $1" ;;
esac
if [ -z "$text" ]; then
  scripts/setup.sh
  go build -o bin/ ./cmd/...
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work/here/out" # which "make build" makes
cd "$work/here"
links=(bin scripts model training configs)
for name in "${links[@]}"; do ln -s "$root/$name" .; done
failures=0 ran=0 skipped=0
names=() lines=() # what is run, in the order of the documents
declare -A seen=() # lines of it: an example of a help text is run once

fail() { # WHAT
  failures=$((failures + 1))
  echo "FAIL  $*"
}

try() { # NAME SCRIPT
  local start=$SECONDS
  ran=$((ran + 1))
  if PATH=$root/bin:$PATH bash -euo pipefail -c "$2" >"$work/output" 2>&1 </dev/null; then
    printf 'PASS  %s (%s)\n' "$1" "$(duration $((SECONDS - start)))"
  else
    failures=$((failures + 1))
    printf 'FAIL  %s\n' "$1"
    printf '%s\n' "$2" | sed 's/^/        $ /'
    tail -n 12 "$work/output" | sed 's/^/        /'
    if [ -e out/s3/pid ]; then scripts/s3_server.sh stop out/s3 || true; fi
  fi
  local stray
  stray=$(find . -mindepth 1 -maxdepth 1 ! -type l ! -name out)
  [ -z "$stray" ] || { fail "$1: leaves ${stray//$'\n'/ }, want all of it below out/"; rm -rf $stray; }
}

skip() { # NAME WHY
  skipped=$((skipped + 1))
  printf 'SKIP  %s (%s)\n' "$1" "$2"
}

# blocks prints the sh blocks of a document, each line led by "run" and the number of the line
# that the block starts on; "skip", that number and the reason of those that are not run; and
# "bare" with the number of each line that is a command in a block of another kind.
blocks() { # FILE
  awk '
    function command() { return $0 ~ /^ *([.]\/(bin|scripts)\/|(evict|train|make|go|docker|curl|pip) [a-z.-])/ }
    /^<!-- not run: .+ -->$/ { why = $0; gsub(/^<!-- not run: | -->$/, "", why); next }
    /^```/ && !inside { inside = 1; sh = $0 == "```sh"; start = NR; if (why) print "skip:" NR ":" why; skip = why; why = ""; next }
    /^```/ { inside = 0; skip = ""; next }
    inside && sh && !skip { print "run:" start ":" $0 }
    inside { if (!sh && !skip && command()) print "bare:" NR ":" $0; next }
    /^    / && why { print "skip:" NR ":" why; skip = why; why = "" }
    /^    / { if (!skip && command()) print "bare:" NR ":" $0; next }
    /[^[:space:]]/ { why = skip = "" }
  ' "$1"
}

# anchors prints the headings of a document as links name them.
anchors() { # FILE
  awk '/^```/ { code = !code } !code && /^#+ /' "$1" | sed -E 's/^#+ //; s/`//g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

length=$(wc -l <"$root/README.md")
[ "$length" -le 150 ] || fail "README.md: $length lines, want at most 150"
while IFS= read -r number; do
  grep -qF "$number" "$root/docs/papers.md" || fail "docs/papers.md lacks arXiv:$number, which the code cites"
done < <(git -C "$root" grep -hoE 'arXiv:[0-9]{4}\.[0-9]{5}' -- '*.go' '*.py' '*.sh' '*.md' | cut -d: -f2 | sort -u)
while IFS= read -r place; do
  fail "$place: cites a paper by a file name; want NAME, arXiv:NUMBER"
done < <(git -C "$root" grep -nE '\b(lookaheadkv|judgeq|dapq|d2o|rocketkv)[.]txt' -- '*.go' '*.py' '*.sh' '*.md' ':!scripts/check_readme.sh' | cut -d: -f1,2)

for document in README.md CONTRIBUTING.md CHANGELOG.md $(cd "$root" && ls docs/*.md) configs/papers/README.md; do
  all=$(blocks "$root/$document")
  while IFS=: read -r what start why; do
    case $what in
      bare) fail "$document:$start: '$why' is neither in an sh block nor marked <!-- not run: WHY -->" ;;
      skip)
        case $why in
          needs\ * | takes\ * | .ci/run\ does*) skip "$document:$start" "$why" ;;
          *) fail "$document:$start: not run: '$why', want a reason that begins with needs, takes or .ci/run does" ;;
        esac
        ;;
    esac
  done <<<"$all"
  for start in $(printf '%s\n' "$all" | sed -n 's/^run:\([0-9]*\):.*/\1/p' | sort -nu); do
    names+=("$document:$start")
    lines+=("$(printf '%s\n' "$all" | sed -n "s/^run:$start://p")")
    while IFS= read -r line; do
      case $line in ./bin/*) seen["${line#./bin/}"]=yes ;; esac
    done <<<"${lines[-1]}"
  done
  for target in $(grep -oE '\]\([^)]+\)' "$root/$document" | sed 's/^](//; s/)$//' | grep -vE '^https?:' || true); do
    file=${target%%#*}
    file=$root/${file:+$(dirname "$document")/}${file:-$document}
    if [ ! -e "$file" ]; then
      fail "$document: link to $target leads nowhere"
    elif [[ $target == *'#'* ]] && ! anchors "$file" | grep -qxF "${target#*#}"; then
      fail "$document: link to $target: no such heading"
    fi
  done
done
if [ -n "$text" ]; then
  [ $failures = 0 ]
  exit
fi

# commands prints the subcommands of a command.
commands() { "$root/bin/$1" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | grep -vxE 'completion|help'; }

examples() { "$root/bin/$1" ${2:+"$2"} --help | sed -n '/^Examples:/,/^$/s/^  //p'; }

for binary in train evict; do
  all=$(commands $binary) || die "$binary --help lists no commands"
  for command in "" $all; do
    found=''
    while IFS= read -r line; do
      name="$binary ${command:+$command }--help: $line"
      case $line in
        '' | \#*) continue ;;
        *path/to/* | *org/* | *s3://bucket/*) found=yes; skip "$name" "needs a model, a run or a bucket of the reader's own"; continue ;;
        *shipped_adapters.*) found=yes; skip "$name" "takes two hours"; continue ;;
      esac
      found=yes
      [ -z "${seen[$line]:-}" ] || continue
      seen[$line]=yes
      names+=("$name")
      lines+=("$line")
    done < <(examples $binary "$command")
    [ -n "$found" ] || fail "$binary $command --help has no example"
  done
done

for i in "${!names[@]}"; do try "${names[i]}" "${lines[i]}"; done
if [ -n "$twice" ]; then
  echo "once more in the same folder, the last one first"
  for ((i = ${#names[@]} - 1; i >= 0; i--)); do try "${names[i]}, again" "${lines[i]}"; done
fi

echo "$ran run, $skipped left out, $failures failures"
[ $failures = 0 ]
