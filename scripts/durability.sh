#!/usr/bin/env bash
# Disturbs runs, disks, networks and an S3 server in every way that is thought of, and
# prints one line per case. About 3 minutes on 2 cores.
#
#   ./scripts/durability.sh
#   ./scripts/durability.sh --beside-tests   # what .ci/run does: fewer kills, and nothing that scripts/test.sh runs alike
#
# GLIMPSE_VERSITYGW may name the versitygw program, a real S3 server; without it, it is
# installed into the user's cache folder. The server listens on the loopback interface only.
set -euo pipefail
source "$(dirname "$0")/common.sh"

beside='' alike='^$'
case ${1:-} in
  --beside-tests) beside=yes alike='/^(memory|folder)$' ;; # of S3 what only versitygw shows
  ?*) die "got '$1', want --beside-tests or nothing" ;;
esac
scripts/setup.sh
GLIMPSE_VERSITYGW=$(versitygw)
export GLIMPSE_VERSITYGW
[ -n "$beside" ] || export GLIMPSE_DURABILITY=full
go build -o bin/ ./cmd/...

work=$(mktemp -d)
cleanup() {
  umount "$work/disk" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
failures=0 cases=0

line() { # VERDICT NAME [DETAIL]
  case $1 in
    SKIP) ;;
    *) cases=$((cases + 1)) ;;
  esac
  [ "$1" != FAIL ] || failures=$((failures + 1))
  printf '%s  %s%s\n' "$1" "$2" "${3:+: $3}"
}

# repeats runs tests as scripts/test.sh does.
repeats() { [ -n "$beside" ] || tests "$@"; }

# tests runs Go tests; every test, and every server that it ran on, is a case. What a
# test logs is its detail.
tests() { # PACKAGE PATTERN
  local code=0
  go test -vet=off "${tags[@]}" -count=1 -timeout 5m -v -run "$2" -skip "$alike" "$1" >"$work/log" 2>&1 || code=$?
  while IFS=$'\t' read -r verdict name detail; do
    line "$verdict" "$name" "$detail"
  done < <(awk '
    /^=== / { next }
    /^ *durability_test.go:[0-9]+: / { detail = $0; sub(/^ *[^ ]+ /, "", detail); next }
    /^ *--- (PASS|FAIL|SKIP): / {
      name = $3; seconds = $4; gsub(/[()]/, "", seconds)
      # The line of a test stands before those of its parts, which say more.
      if (held != "" && index(name, above "/") != 1) print held
      above = name
      held = sprintf("%s\t%s\t%s%s", substr($2, 1, 4), substr(name, 5), seconds, detail == "" ? "" : ", " detail)
      if (name ~ /\//) { print held; held = "" }
      detail = ""
    }
    END { if (held != "") print held }' "$work/log")
  if [ $code != 0 ]; then
    grep -q '^ *--- FAIL' "$work/log" || line FAIL "$1"
    { grep -E '^ *([a-z0-9_]+_test\.go:[0-9]+: |--- FAIL)' "$work/log" | head -n 30; tail -n 30 "$work/log"; } | sed 's/^/        /'
  fi
}

echo "== kills, signals, damaged checkpoints"
tests ./cmd/train '^TestKilledRuns$' # more kills
repeats ./cmd/train '^(TestSignals|TestDamagedCheckpoint|TestSecondRun)$'
repeats ./checkpoints '^(TestKilledWriter|TestWritesFailInTheMiddle|TestSaveStateKeepsThePrevious)$'

echo "== disks"
run=("$root/bin/train" judgeq --batch 1 --tokens 64 --rows 32 --validate 0 --out "$work/adapter" --checkpoint "$work/disk/state" --checkpoint-every 1)
# faulty runs out of disk or permission; what was saved before must still be taken up.
faulty() { # NAME TEXT
  local code=0
  "${run[@]}" --steps $steps --resume >"$work/stdout" 2>"$work/stderr" || code=$?
  if [ $code != 1 ]; then
    line FAIL "$1" "exit code $code, want 1: $(tail -n 1 "$work/stderr")"
  elif ! grep -q "$2" "$work/stderr"; then
    line FAIL "$1" "the error does not say '$2': $(tail -n 1 "$work/stderr")"
  elif grep -qE '^(panic:|goroutine )' "$work/stderr"; then
    line FAIL "$1" "it crashed"
  else
    line PASS "$1" "$(tail -n 1 "$work/stderr" | cut -c -160)"
  fi
}
goes_on() { # NAME: after the fault, to the bytes of a run without it
  if "${run[@]}" --steps $steps --resume >"$work/stdout" 2>"$work/stderr" && grep -q 'going on after step [0-9]* of' "$work/stderr" &&
    diff -r "$work/adapter" "$work/undisturbed" >/dev/null; then
    line PASS "$1" "$(grep 'going on' "$work/stderr"), same bytes as an undisturbed run"
  else
    line FAIL "$1" "$(tail -n 1 "$work/stderr")"
  fi
}
steps=100
mkdir "$work/disk"
if mount -t tmpfs -o size=256k tmpfs "$work/disk" 2>/dev/null; then
  "${run[@]}" --steps $steps >/dev/null 2>&1
  mv "$work/adapter" "$work/undisturbed"
  rm "$work"/disk/*
  # A run that is stopped after some steps, and then finds a disk that is full.
  "${run[@]}" --steps $steps >/dev/null 2>&1 &
  pid=$!
  until [ -e "$work/disk/state.previous" ]; do sleep 0.01; done
  kill -INT $pid
  code=0
  wait $pid || code=$?
  if [ $code = 75 ]; then
    dd if=/dev/zero of="$work/disk/filler" bs=1k count=1000 2>/dev/null || true
    faulty "full disk" "no space left on device"
    faulty "full disk, a second time" "no space left on device"
    rm "$work/disk/filler"
    mount -o remount,ro "$work/disk"
    faulty "read-only folder" "read-only file system"
    mount -o remount,rw "$work/disk"
    goes_on "the checkpoint before the faults"
  else
    line FAIL "full disk" "the run to be stopped ended with code $code, want 75"
  fi
else
  line SKIP "full disk, read-only folder" "mounting a small disk needs root"
fi

echo "== S3: a server in memory, and versitygw"
tests ./checkpoints/objectstore .
tests ./cmd/train '^(TestKilledExport|TestS3Run|TestShardsInABucket)$'
tests ./generation '^TestShardsOfABucket$'
tests ./jobs .
tests ./cmd/evict '^TestS3$'

[ -n "$beside" ] || echo "== servers that stop in the middle, and what small files and adapters claim"
repeats ./internal/patience .
repeats ./model/hub '^(TestStalledDescription|TestFinalConnectionErrors|TestCut)$'
repeats ./datasets '^(TestParquet|TestBrokenParquet)'
repeats ./eviction 'NotFinite$'
repeats ./internal/atomicfile '^(TestSweepDead|TestCreateSweeps)$'

echo "$((cases - failures)) of $cases cases passed in $(duration $SECONDS)"
[ $failures = 0 ]
