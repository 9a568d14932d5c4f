#!/usr/bin/env bash
# Puts the results of a demo into docs/demo.md, between the lines "<!-- demo -->" and
# "<!-- end of demo -->", and of a few policies a chart into docs/accuracy.svg and their
# rows into README.md ("excerpt").
#
#   ./scripts/update_demo.sh [DIR]
#   ./scripts/update_demo.sh --readme   # only the chart and the rows, from docs/demo.md
#
# DIR is the demo's folder (out/demo).
set -euo pipefail
source "$(dirname "$0")/common.sh"

# The README's chart: a name in the table, the line's colour and its label.
chart() {
  awk '
    BEGIN {
      FS = " *[|] *"
      n = split("full #7f7f7f full_cache|lookaheadkv/shipped #d55e00 LookaheadKV|laq #009e73 LAQ|judgeq/shipped #0072b2 Judge_Q|snapkv #cc79a7 SnapKV|h2o #e69f00 H2O|streamingllm #000000 StreamingLLM", row, "|")
      for (i = 1; i <= n; i++) { split(row[i], part, " "); name[i] = part[1]; colour[part[1]] = part[2]; label[part[1]] = part[3]; gsub("_", " ", label[part[1]]) }
      left = 56; right = 520; top = 20; bottom = 300
    }
    function x(b) { return left + (right - left) * (b - budget[1]) / (budget[columns] - budget[1]) }
    function y(v) { return bottom - (bottom - top) * v / 100 }
    /^\| policy \| B = / && !columns { for (i = 3; i < NF; i++) { sub("B = ", "", $i); budget[++columns] = $i }; reading = 1; next }
    reading && !/^\|/ { reading = 0 }
    reading && $2 in colour { for (i = 1; i <= columns; i++) { value = $(i + 2); sub(" .*", "", value); score[$2, i] = value }; found[$2] = 1 }
    END {
      for (i = 1; i <= n; i++) if (!(name[i] in found)) { print "chart: no row of " name[i] > "/dev/stderr"; exit 1 }
      print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 680 352\" font-family=\"sans-serif\" font-size=\"13\">"
      print "<title>Exact answers against budget</title>"
      print "<rect width=\"680\" height=\"352\" fill=\"#ffffff\"/>"
      for (v = 0; v <= 100; v += 20) {
        printf "<path d=\"M%d %.1fH%d\" stroke=\"#dddddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#333333\">%d</text>\n", left, y(v), right, left - 8, y(v) + 4.5, v
      }
      for (i = 1; i <= columns; i++) printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#333333\">%d</text>\n", x(budget[i]), bottom + 20, budget[i]
      printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#333333\">KV pairs kept per head and layer, of 512</text>\n", (left + right) / 2, bottom + 42
      printf "<text transform=\"translate(16 %.1f) rotate(-90)\" text-anchor=\"middle\" fill=\"#333333\">exact answers, %%</text>\n", (top + bottom) / 2
      # Labels beside the last points, best first, 17 units apart at least.
      for (i = 1; i <= n; i++) order[i] = name[i]
      for (i = 2; i <= n; i++) for (j = i; j > 1 && score[order[j], columns] + 0 > score[order[j - 1], columns] + 0; j--) { t = order[j]; order[j] = order[j - 1]; order[j - 1] = t }
      last = -100
      for (i = 1; i <= n; i++) {
        p = order[i]
        at = y(score[p, columns]); if (at < last + 17) at = last + 17
        last = at
        points = ""
        for (c = 1; c <= columns; c++) points = points sprintf("%.1f,%.1f ", x(budget[c]), y(score[p, c]))
        printf "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s/>\n", points, colour[p], p ~ /shipped/ ? "3.5" : "2", p == "full" ? " stroke-dasharray=\"6 4\"" : ""
        if (p != "full") for (c = 1; c <= columns; c++) printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x(budget[c]), y(score[p, c]), colour[p]
        printf "<text x=\"%d\" y=\"%.1f\" fill=\"%s\">%s %.0f</text>\n", right + 12, at + 4.5, colour[p], label[p], score[p, columns]
      }
      print "</svg>"
    }' docs/demo.md >docs/accuracy.svg.new || { rm -f docs/accuracy.svg.new; die "docs/demo.md has no table for the chart"; }
  mv docs/accuracy.svg.new docs/accuracy.svg
}

# The README's rows of the overview, with where and when they were measured.
excerpt() {
  {
    sed -n '/^Measured on /{s/ The whole demo took.*//p;q;}' docs/demo.md
    echo
    awk '
      BEGIN { n = split("full oracle lookaheadkv/shipped laq judgeq/shipped adakv snapkv duoattention h2o streamingllm", name, " "); for (i = 1; i <= n; i++) wanted[name[i]] = 1 }
      /^\| policy \| B = / && !done { reading = 1; print; next }
      reading && !/^\|/ { reading = 0; done = 1 }
      reading && /^\|:/ { print; next }
      reading { split($0, cell, " *[|] *"); if (cell[2] in wanted) { print; found++ } }
      END { exit found == n ? 0 : 1 }' docs/demo.md || die "docs/demo.md lacks rows for the README"
  } | replace_section README.md excerpt
}

if [ "${1:-}" = --readme ]; then
  chart
  excerpt
  exit
fi
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
} | replace_section docs/demo.md demo
chart
excerpt
