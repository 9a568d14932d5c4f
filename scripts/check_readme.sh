#!/usr/bin/env bash
# Runs what README.md, docs/*.md and the help texts tell people to run: every "sh"
# block of the documents and every example of every command's --help, in a folder of
# its own. Left out are
#
#   - blocks below a line "<!-- not run: WHY -->", which says why;
#   - examples that name a model of the reader's own, as path/to/… or org/….
#
# Also checks that relative links of the documents lead somewhere. One line per
# block and example, PASS or FAIL.
set -euo pipefail
source "$(dirname "$0")/common.sh"

scripts/setup.sh
go build -o bin/ ./cmd/...
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/here"
cd "$work/here"
ln -s "$root/bin" "$root/scripts" "$root/model" .
failures=0 ran=0

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

# The blocks of one document build on each other, and stand alone otherwise.
for document in README.md $(cd "$root" && ls docs/*.md 2>/dev/null); do
  clean
  all=$(blocks "$root/$document")
  for start in $(printf '%s\n' "$all" | cut -d: -f1 | sort -nu); do
    try "$document:$start" "$(printf '%s\n' "$all" | sed -n "s/^$start://p")"
  done
  for target in $(grep -o '](\([^)#]*\)' "$root/$document" | cut -c 3- | grep -v '^https\{0,1\}:' || true); do
    [ -e "$root/$(dirname "$document")/$target" ] || {
      failures=$((failures + 1))
      echo "FAIL  $document: link to $target leads nowhere"
    }
  done
done

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
