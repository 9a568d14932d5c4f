#!/usr/bin/env bash
# Puts the results of a demo into lab/results/demo.md, between the lines "<!-- demo -->" and
# "<!-- end of demo -->".
#
#   ./lab/reference/update_demo.sh [DIR]
#
# DIR is the demo's folder (out/demo).
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

dir=$root/out/demo
[ $# = 0 ] || dir=$(absolute "$1")
for file in demo.txt table.md; do
  [ -f "$dir/$file" ] || die "$dir/$file is missing; run scripts/demo.sh first"
done
! grep -q '^commit: .*-dirty' "$dir/demo.txt" || die "the demo in $dir ran on uncommitted changes; commit them and run it again"

fact() { sed -n "s/^$1: //p" "$dir/demo.txt"; }
{
  echo "Measured on $(fact date) on $(fact machine), commit $(fact commit): $(fact recipe). The whole demo took $(fact time)."
  echo
  # The overview for all, the tables by budget for those who unfold them.
  awk '/^\*\*Budget/ && !folded { print "<details>\n<summary>Every budget by task, with hit rate, memory and speed</summary>\n"; folded = 1 }
    { print }
    END { if (folded) print "\n</details>" }' "$dir/table.md"
} | replace_section lab/results/demo.md demo
