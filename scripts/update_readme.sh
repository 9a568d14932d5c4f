#!/usr/bin/env bash
# Puts the results of a demo into README.md, between the lines "<!-- demo -->" and
# "<!-- end of demo -->", and its plot into docs/.
#
#   ./scripts/update_readme.sh [DIR]
#
# DIR is the demo's folder (out/demo).
set -euo pipefail
source "$(dirname "$0")/common.sh"

dir=$root/out/demo
[ $# = 0 ] || dir=$(absolute "$1")
for file in demo.txt table.md accuracy.png; do
  [ -f "$dir/$file" ] || die "$dir/$file is missing; run scripts/demo.sh first"
done
! grep -q '^commit: .*-dirty' "$dir/demo.txt" || die "the demo in $dir ran on uncommitted changes; commit them and run it again"

fact() { sed -n "s/^$1: //p" "$dir/demo.txt"; }
section=$(mktemp)
trap 'rm -f "$section" "$section.new"' EXIT
{
  echo "<!-- demo -->"
  echo
  echo "Measured on $(fact date) on $(fact machine), commit $(fact commit): $(fact recipe). The whole demo took $(fact time)."
  echo
  # The overview for all, the tables by budget for those who unfold them.
  awk '/^\*\*Budget/ && !folded { print "<details>\n<summary>Every budget by task, with hit rate, memory and speed</summary>\n"; folded = 1 }
    { print }
    END { if (folded) print "\n</details>" }' "$dir/table.md"
  echo
  echo "<!-- end of demo -->"
} >"$section"
awk -v section="$section" '
  /^<!-- demo -->$/ { while ((getline line < section) > 0) print line; inside = 1; found++ }
  !inside
  /^<!-- end of demo -->$/ { inside = 0 }
  END { exit found == 1 && !inside ? 0 : 1 }
' README.md >"$section.new" || die "README.md: want one section between '<!-- demo -->' and '<!-- end of demo -->'"
cat "$section.new" >README.md
mkdir -p docs
cp "$dir/accuracy.png" docs/accuracy.png
