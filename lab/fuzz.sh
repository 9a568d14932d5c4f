#!/usr/bin/env bash
# Runs every fuzz target in turn and prints its executions. What fails is written to the
# package's testdata/fuzz, from where "go test" runs it, too.
#
#   ./lab/fuzz.sh                 # a minute each
#   ./lab/fuzz.sh 10m             # ten minutes each
#   ./lab/fuzz.sh 30s Parquet     # those whose names contain this
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"
time=${1:-1m} name=${2:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0
while IFS=: read -r file target; do
  package=$(dirname "$file")
  binary=$work/${package//\//_}
  [ -e "$binary" ] || go test -c -fuzz=. -o "$binary" "./$package"
  # Minimising an input of a slow target takes it a minute each, in which nothing else
  # runs: a few tries do. The library's workers hold memory, so there are few.
  verdict=ok
  (cd "$package" && "$binary" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="$time" -test.fuzzminimizetime=10x \
    -test.parallel=2 -test.fuzzcachedir="$(go env GOCACHE)/fuzz/glimpse/$package") >"$work/log" 2>&1 || verdict=FAILED failed=1
  printf '%-6s  %-14s %-28s %s\n' "$verdict" "$target" "$package" "$(grep -o 'execs: [0-9]*' "$work/log" | tail -n 1)"
  [ "$verdict" = ok ] || tail -n 40 "$work/log"
done < <(git ls-files --cached --others --exclude-standard -- '*_test.go' | xargs grep -Ho "^func Fuzz[A-Za-z]*$name[A-Za-z]*" | sed 's/func //')
exit $failed
