#!/usr/bin/env bash
# Chooses the observation window and the pooling of every policy that ranks by attention,
# by one rule, for the built-in model: of all windows and kernels those with the highest
# mean accuracy over tasks and the budgets 32, 64, 96 and 128, on the validation split,
# never on the test split. Writes
#
#   model/builtin/reference/glimpse_policies.json   what was chosen, which the model's
#                                                   commands, demo and tables start from
#   docs/policies.md, section "tuning"              what each kernel comes to
#
#   ./lab/reference/tune_policies.sh [--samples N] [--out DIR]
#
# --samples  prompts per task (8); about 11 minutes on 2 idle cores
# --out      folder for the results of every setting (out/tuning); an interrupted run goes
#            on where it was, as long as the program is the same
#
# Kernels are 1, 3, 7, 15, 31 and 63; windows are 8, 16 and 32 rows, and for h2o also none,
# which accumulates over all rows. lookaheadkv has none: with one it is another method. rocketkv-mt, which is rocketkv in a first turn, takes what rocketkv does,
# adakv and compose score by snapkv, and an adapter brings its own kernel, which is
# measured all the same.
set -euo pipefail
export LC_ALL=C
source "$(dirname "$0")/../../scripts/common.sh"

samples=8 out=$root/out/tuning
while [ $# -gt 0 ]; do
  case $1 in
    --samples) samples=${2:?--samples: want a number} ;;
    --out) out=$(absolute "${2:?--out: want a folder}") ;;
    *) die "unknown argument $1" ;;
  esac
  shift 2
done
scripts/setup.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
go build -o "$work/evict" ./cmd/evict

# What was chosen before is no part of the program that measures: it sets all that it tunes.
readonly chosen=model/builtin/reference/glimpse_policies.json
files='{{if not .Standard}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}
{{end}}{{range .SFiles}}{{$d}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}
{{end}}{{end}}'
key=$({ go list -deps -f "$files" ./cmd/evict | grep . | grep -vF "/$chosen" | sort | xargs sha256sum; echo "$samples"; } | sha256sum | cut -c1-16)
mkdir -p "$out/$key"

# NAME WINDOWS of every policy with a kernel; "-" is no window.
"$work/evict" policies | awk '
  NR > 1 && $1 != "rocketkv-mt" {
    kernel = window = ""
    for (i = 2; i <= NF; i++) {
      if ($i ~ /^kernel=[0-9]+$/) kernel = substr($i, 8)
      if ($i ~ /^window=[0-9]+$/) window = substr($i, 8)
    }
    if (kernel == "") next
    windows = window == "" ? "-" : $1 == "h2o" ? "0,8,16,32" : window == "0" ? "0" : "8,16,32"
    print $1, windows
  }' >"$work/grid"
[ -s "$work/grid" ] || die "no policy has a kernel"

# One run for all policies that take a window and a kernel: they share every prompt's prefill.
SECONDS=0
for kernel in 1 3 7 15 31 63; do
  for window in - 0 8 16 32; do
    names=$(awk -v w="$window" 'index("," $2 ",", "," w ",") { print $1 }' "$work/grid")
    [ -n "$names" ] || continue
    result=$out/$key/window$window-kernel$kernel.json
    echo "$window $kernel $result" >>"$work/results"
    [ ! -e "$result" ] || continue
    set=()
    for name in $names; do
      set+=(--set "$name.kernel=$kernel")
      [ "$window" = - ] || set+=(--set "$name.window=$window")
    done
    echo "window $window, kernel $kernel: $(echo $names) ($(duration $SECONDS))" >&2
    "$work/evict" eval --policy "$(echo $names | tr ' ' ,)" --split validation --budget 32,64,96,128 --tokens 512 \
      --samples "$samples" --seed 1 --json "${set[@]}" >"$work/result" 2>"$work/log" || die "$(cat "$work/log")"
    mv "$work/result" "$result"
  done
done

# policy window kernel, the accuracy in % at every budget, and their mean.
while read -r window kernel result; do
  awk -v window="$window" -v kernel="$kernel" '
    match($0, /"policy":"[^"]*"/)     { p = substr($0, RSTART + 10, RLENGTH - 11) }
    match($0, /"budget":[0-9]+/)      { b = substr($0, RSTART + 9, RLENGTH - 9) }
    match($0, /"score":[0-9.e-]+/) { seen[p]; sum[p, b] += substr($0, RSTART + 8, RLENGTH - 8); n[p, b]++ }
    END {
      for (p in seen) {
        line = p " " window " " kernel; all = 0
        for (b = 32; b <= 128; b += 32) { v = 100 * sum[p, b] / n[p, b]; all += v / 4; line = line sprintf(" %.1f", v) }
        print line sprintf(" %.2f", all)
      }
    }' "$result"
done <"$work/results" | sort -k1,1 -k2,2n -k3,3n >"$work/table"
{ echo "policy window kernel 32 64 96 128 mean"; cat "$work/table"; } |
  awk '{ printf "%-12s %6s %6s   %6s %6s %6s %6s   %6s\n", $1, $2, $3, $4, $5, $6, $7, $8 }'

# The best of every policy; of equals the smaller window, then the smaller kernel.
awk '!($1 in best) || $8 > best[$1] { best[$1] = $8; line[$1] = $0 } END { for (p in line) print line[p] }' "$work/table" | sort >"$work/best"

# adapters bring their kernels.
"$work/evict" policies --json | awk '/^      "name"/ { gsub(/[",]/, "", $2); name = $2 } /^      "adapter"/ { print name }' >"$work/learned"
{
  grep -v '^[{}]' "$chosen" | sed 's/,*$//' | while IFS= read -r line; do # policies that are not tuned
    name=${line#*\"} name=${name%%\"*}
    [ "$name" = rocketkv-mt ] || cut -d' ' -f1 "$work/grid" | grep -qxF -- "$name" || printf '%s\n' "$line"
  done
  awk 'NR == FNR { learned[$1]; next } !($1 in learned) {
    w = $2 == "-" ? "" : "\"window\": " $2 ", "
    line = "{" w "\"kernel\": " $3 "}"
    print "  \"" $1 "\": " line
    if ($1 == "rocketkv") print "  \"rocketkv-mt\": " line
  }' "$work/learned" "$work/best"
} | sort | sed '$!s/$/,/' >"$work/lines"
{ echo "{"; cat "$work/lines"; echo "}"; } >"$work/chosen"
cat "$work/chosen" >"$chosen"

# By kernel, at the best window for it.
awk '
  FILENAME == ARGV[1] { best[$1] = $2 " " $3; next }
  { p[$1]; if (!(($1, $3) in mean) || $8 > mean[$1, $3]) mean[$1, $3] = $8 }
  END {
    n = split("1 3 7 15 31 63", kernels)
    header = "| policy |"; rule = "|:---|"
    for (i = 1; i <= n; i++) { header = header " kernel " kernels[i] " |"; rule = rule "---:|" }
    print header " chosen |"; print rule ":---|"; fflush()
    for (x in p) {
      line = "| " x " |"
      for (i = 1; i <= n; i++) line = line sprintf(" %.1f |", mean[x, kernels[i]])
      split(best[x], b, " ")
      print line " " (b[1] == "-" || b[1] == "0" ? "" : "window " b[1] ", ") "kernel " b[2] " |" | "sort"
    }
  }' "$work/best" "$work/table" | {
  echo "Exact answers in % on the validation split, mean over all tasks and four budgets, $samples prompts"
  echo "a task, each kernel at the best window for it:"
  echo
  cat
} | replace_section docs/policies.md tuning
echo
echo "wrote $chosen and the section \"tuning\" of docs/policies.md in $(duration $SECONDS)"
