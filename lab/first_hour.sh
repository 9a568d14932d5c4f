#!/usr/bin/env bash
# The first hour with a model: runs the commands of docs/serve.md and docs/compare.md, one block
# after the other in a fresh folder, and prints what each took and the last line that it said.
#
#   ./lab/first_hour.sh MODEL                 # a folder, or a name on the Hugging Face hub
#   ./lab/first_hour.sh MODEL train           # another page, or several, of docs/
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"

[ $# -ge 1 ] || die "want a model: a folder, or a name on the Hugging Face hub"
MODEL=$1
shift
[ ! -d "$caller/$MODEL" ] || MODEL=$caller/$MODEL
[ $# -gt 0 ] || set -- serve compare
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export MODEL PATH=$root/bin:$PATH
command -v evict >/dev/null || die "bin/evict is missing: make build"
cd "$work"
mkdir out
ln -s "$root/bin" "$root/scripts" .
cp -r "$root/docs" . # texts to try policies on

printf '| page | command | time | last line |\n|:---|:---|---:|:---|\n'
begin=$SECONDS
for page; do
  [ -e "docs/$page.md" ] || die "docs/$page.md does not exist"
  all=$(blocks "docs/$page.md")
  for at in $(sed -n 's/^run:\([0-9]*\):.*/\1/p' <<<"$all" | sort -nu); do
    lines=$(sed -n "s/^run:$at://p" <<<"$all")
    start=$SECONDS
    bash -euo pipefail -c "$lines" >output 2>&1 </dev/null || { cat output >&2; die "docs/$page.md:$at failed: $lines"; }
    command=$(grep -vE '^(MODEL=|mkdir)' <<<"$lines" | head -n 1)
    printf '| %s | `%s` | %s | %s |\n' "$page" "$(cut -c1-60 <<<"${command//|/\\|}")" "$(duration $((SECONDS - start)))" "$(grep -v '^ *$' output | tail -n 1 | cut -c1-100)"
  done
done
echo
echo "all of it in $(duration $((SECONDS - begin)))"
