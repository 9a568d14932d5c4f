#!/usr/bin/env bash
# Puts what lab/reference/reference_results.sh has finished into lab/results/claims.md, each run between the lines
# "<!-- NAME -->" and "<!-- end of NAME -->", and its chart beside it; a few of the policies at 512 tokens are the
# README's chart, docs/accuracy.svg.
#
#   ./lab/reference/update_results.sh [--out DIR]
#   ./lab/reference/update_results.sh --readme   # only the README's chart, from lab/results/claims.md
#
# --out  folder of the runs (out/results)
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

# The README's chart: a name in the table, the line's colour and its label.
chart() {
  awk '
    BEGIN {
      FS = " *[|] *"
      n = split("full #7f7f7f full_cache|lookaheadkv #d55e00 LookaheadKV|laq #009e73 LAQ|judgeq #0072b2 Judge_Q|snapkv #cc79a7 SnapKV|h2o #e69f00 H2O|streamingllm #000000 StreamingLLM", row, "|")
      for (i = 1; i <= n; i++) { split(row[i], part, " "); name[i] = part[1]; colour[part[1]] = part[2]; label[part[1]] = part[3]; gsub("_", " ", label[part[1]]) }
      left = 56; right = 520; top = 20; bottom = 300
    }
    function x(b) { return left + (right - left) * (b - budget[1]) / (budget[columns] - budget[1]) }
    function y(v) { return bottom - (bottom - top) * v / 100 }
    /^\| policy \| B = / && !columns { for (i = 3; i < NF; i++) if (sub("^B = ", "", $i)) budget[++columns] = $i; reading = 1; next }
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
      printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#333333\">KV entries kept per head and layer, of 512</text>\n", (left + right) / 2, bottom + 42
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
        printf "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s/>\n", points, colour[p], p ~ /^(lookaheadkv|judgeq)$/ ? "3.5" : "2", p == "full" ? " stroke-dasharray=\"6 4\"" : ""
        if (p != "full") for (c = 1; c <= columns; c++) printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x(budget[c]), y(score[p, c]), colour[p]
        printf "<text x=\"%d\" y=\"%.1f\" fill=\"%s\">%s %.0f</text>\n", right + 12, at + 4.5, colour[p], label[p], score[p, columns]
      }
      print "</svg>"
    }' lab/results/claims.md >docs/accuracy.svg.new || { rm -f docs/accuracy.svg.new; die "lab/results/claims.md has no table for the chart"; }
  mv docs/accuracy.svg.new docs/accuracy.svg
}

if [ "${1:-}" = --readme ]; then
  chart
  exit
fi
out=$root/out/results
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$(absolute "${2:?--out: want a folder}") ;;
    *) die "unknown argument $1" ;;
  esac
  shift 2
done
for name in test_512 test_2048 ablations_512 ablations_2048 compositions merging latency; do
  [ -e "$out/done/$name" ] || continue
  read -r seconds cores < <(awk -v name="$name" '$1 == name { line = $2 " " $3 } END { print line }' "$out/times")
  {
    echo "Measured on $(date -u -r "$out/done/$name" +%Y-%m-%d) on $cores cores of $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1 | grep . || uname -m), commit $(cat "$out/$name.commit"), in $(duration "$seconds"):"
    echo
    echo "<!-- not run: takes $(duration "$seconds") -->"
    echo '```sh'
    echo "./lab/reference/reference_results.sh --stage $name"
    echo '```'
    echo
    if [ "$name" != latency ]; then # which has one budget
      cp "$out/$name.svg" "lab/results/$name.svg"
      echo "![Exact answers against the budget]($name.svg)"
      echo
    fi
    python3 lab/reference/reference_claims.py "$out" "$name"
  } | replace_section lab/results/claims.md "$name"
done
chart
