#!/usr/bin/env bash
# Runs every test of a Go test binary in a process of its own: on a GPU an illegal access
# or a kernel that hangs ends all that a process does after it. A line for each test, a log
# for each, and at the end how many passed.
#
#   ./lab/gpu/each_test.sh [options] BINARY
#
#   --run REGEXP     tests, as "go test" takes them              (.)
#   --first NAMES    tests that come first, riskiest first, with blanks between them
#   --skip NAMES     tests that are left out
#   --folder DIR     where they run, usually the package's       (the binary's)
#   --logs DIR       a log for each                              (a temporary one)
#   --limit SECONDS  for each test                               (90)
#   --seconds N      for all; those that are left are "late"     (3600)
#
# The operations of TestBackendsConform/cuda count as tests. One that fails runs once more
# with GLIMPSE_CUDA_WAIT=1, whose error names the kernel. Exits with 0 if none failed.
set -uo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

run=. first='' skip='' folder='' logs='' limit=90 seconds=3600 binary=''
while [ $# -gt 0 ]; do
  case $1 in
    --run | --first | --skip | --folder | --logs | --limit | --seconds)
      [ $# -gt 1 ] || die "$1: value missing"
      declare "${1#--}=$2"
      shift 2
      ;;
    --*) die "got '$1', want one of the options that the head of this file lists" ;;
    *) binary=$1 && shift ;;
  esac
done
binary=$(absolute "$binary")
[ -x "$binary" ] || die "$binary is no test binary"
folder=$(absolute "${folder:-$(dirname "$binary")}")
if [ -z "$logs" ]; then
  logs=$(mktemp -d)
  trap 'rm -rf "$logs"' EXIT
fi
logs=$(absolute "$logs")
mkdir -p "$logs"
cd "$folder" || exit 1

# Without a device tests fail, not skip.
export GLIMPSE_CUDA_DRIVER=${GLIMPSE_CUDA_DRIVER:-libcuda.so.1}

# "Conform/cuda/Norm" chooses by parts, as "go test" does. Operations are listed by what
# the processor runs of them.
top=${run%%/*} units=()
for t in $first $("$binary" -test.list "$top" | grep '^Test'); do
  case " ${units[*]:-} ${skip//$'\n'/ } " in *" $t "*) continue ;; esac
  if [ "$t" != TestBackendsConform ]; then
    [ "$run" != "$top" ] && [ "$top" != . ] && units+=("$t/${run#*/}") || units+=("$t")
    continue
  fi
  op=. backend=cuda
  if [ "$run" != "$top" ]; then
    backend=${run#*/} && op=${backend#"${backend%%/*}"} && op=${op#/} && op=${op:-.}
  fi
  for o in $("$binary" -test.run "^$t\$/^cpu\$/$op" -test.v | sed -n "s|^=== RUN *$t/cpu/||p"); do units+=("$t/cuda/$o"); done
done

passed=0 failed=0 skipped=0 late=0 begin=$SECONDS
for t in "${units[@]}"; do
  left=$((seconds - SECONDS + begin))
  if [ "$left" -lt 1 ]; then
    late=$((late + 1))
    continue
  fi
  [ "$left" -lt "$limit" ] || left=$limit
  pattern=^${t//\//\$/^}\$
  case $t in TestBackendsConform/*) ;; */*) pattern=^${t%%/*}\$/${t#*/} ;; esac
  log=$logs/${t//[^A-Za-z0-9_-]/-}.log start=$SECONDS code=0 what=ok why=''
  timeout -k 5 "$left" "$binary" -test.run "$pattern" -test.v -test.timeout "${left}s" >"$log" 2>&1 || code=$?
  if [ "$code" != 0 ]; then
    what=FAIL failed=$((failed + 1))
    why=$(grep -hm1 -E 'does without it|panic:|fatal' "$log" || grep -hm1 -E '_test.go:[0-9]+:|cuda:[0-9]+:' "$log")
    why=${why:0:200}
    [ "$code" != 124 ] && [ "$code" != 137 ] || why="not done after $left s. $why"
    [ "$code" = 124 ] || GLIMPSE_CUDA_WAIT=1 timeout -k 5 "$left" "$binary" -test.run "$pattern" -test.v >"${log%.log}.wait.log" 2>&1
  elif ! grep -q '^ *--- PASS' "$log"; then
    what=skip skipped=$((skipped + 1))
  else
    passed=$((passed + 1))
  fi
  printf '%-4s %4d s  %-48s %s\n' "$what" $((SECONDS - start)) "$t" "$why"
done
echo "$passed passed, $failed failed, $skipped skipped, $late not run"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
