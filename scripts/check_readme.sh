#!/usr/bin/env bash
# Runs what README.md, CONTRIBUTING.md, CHANGELOG.md, docs/*.md and the help texts tell people to
# run: every "sh" block of the documents and every example of every command's --help, in a
# folder of its own. Left out are
#
#   - blocks below a line "<!-- not run: WHY -->", which says why;
#   - examples that name a model of the reader's own, as path/to/… or org/….
#
# Also checks that relative links of the documents lead to files and headings, that the
# README has at most 150 lines, that docs/papers.md lists every arXiv number that the code
# cites, and that nothing cites a paper by a file name of ours. One line per block and
# example, PASS or FAIL.
#
#   ./scripts/check_readme.sh
#   ./scripts/check_readme.sh --text   # without running anything
set -euo pipefail
source "$(dirname "$0")/common.sh"

text=''
case ${1:-} in
  '') ;;
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
mkdir "$work/here"
cd "$work/here"
ln -s "$root/bin" "$root/scripts" "$root/model" .
failures=0 ran=0

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
    if [ -e s3/pid ]; then scripts/s3_server.sh stop "$PWD/s3" || true; fi
  fi
}

# blocks prints the sh blocks of a document, each line led by the number of the line
# that the block starts on.
blocks() { # FILE
  awk '
    /^```sh$/ { if (!skip) { inside = 1; start = NR }; skip = 0; next }
    /^```/ { inside = 0; next }
    inside { print start ":" $0; next }
    /^<!-- not run: .+ -->$/ { skip = 1; next }
    /[^[:space:]]/ { skip = 0 }
  ' "$1"
}

clean() { find . -mindepth 1 -maxdepth 1 ! -type l "$@" -exec rm -rf {} +; }

# anchors prints the headings of a document as links name them.
anchors() { # FILE
  awk '/^```/ { code = !code } !code && /^#+ /' "$1" | sed -E 's/^#+ //; s/`//g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

lines=$(wc -l <"$root/README.md")
[ "$lines" -le 150 ] || fail "README.md: $lines lines, want at most 150"
while IFS= read -r number; do
  grep -qF "$number" "$root/docs/papers.md" || fail "docs/papers.md lacks arXiv:$number, which the code cites"
done < <(git -C "$root" grep -hoE 'arXiv:[0-9]{4}\.[0-9]{5}' -- '*.go' '*.py' '*.sh' '*.md' | cut -d: -f2 | sort -u)
while IFS= read -r place; do
  fail "$place: cites a paper by a file name; want NAME, arXiv:NUMBER"
done < <(git -C "$root" grep -nE '\b(lookaheadkv|judgeq|dapq|d2o|rocketkv)[.]txt' -- '*.go' '*.py' '*.sh' '*.md' ':!scripts/check_readme.sh' | cut -d: -f1,2)

# The blocks of one document build on each other, and stand alone otherwise.
for document in README.md CONTRIBUTING.md CHANGELOG.md $(cd "$root" && ls docs/*.md); do
  clean
  all=$(blocks "$root/$document")
  for start in $(printf '%s\n' "$all" | cut -d: -f1 | sort -nu); do
    [ -n "$text" ] || try "$document:$start" "$(printf '%s\n' "$all" | sed -n "s/^$start://p")"
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
commands() { "$root/bin/$1" --help | sed -n '/^Available Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | grep -vxE 'completion|help'; }

examples() { "$root/bin/$1" ${2:+"$2"} --help | sed -n '/^Examples:/,/^$/s/^  //p'; }

declare -A seen=()
for binary in train evict; do
  for command in "" $(commands $binary); do
    while IFS= read -r line; do
      case $line in
        '' | \#* | *path/to/* | *org/*) continue ;;
        *shipped_adapters.*) continue ;; # half an hour, see scripts/shipped_adapters.sh
      esac
      [ -z "${seen[$line]:-}" ] || continue
      seen[$line]=yes
      clean ! -name pairs.jsonl
      try "$binary ${command:+$command }--help: $line" "$line"
    done < <(examples $binary "$command")
  done
done

echo "$((ran - failures)) of $ran passed"
[ $failures = 0 ]
