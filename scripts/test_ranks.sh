#!/usr/bin/env bash
# Training over Open MPI with processes of their own: the bytes of one process on 2 and 4 ranks, also after one
# of them was killed again and again; and a rank that was stopped is named. Installs Open MPI
# from Debian where it is missing and that is allowed.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if ! command -v mpirun >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update && apt-get install -y --no-install-recommends openmpi-bin; } >/dev/null 2>&1 || true
fi
command -v mpirun >/dev/null || die "mpirun is missing: apt-get install openmpi-bin"
[ -x bin/train ] || die "bin/train is missing: make build"

work=$(mktemp -d)
running=''
trap '[ -z "$running" ] || kill "$running" 2>/dev/null || true; rm -rf "$work"' EXIT
steps=48 kills=10
arguments=(lookahead --steps "$steps" --batch 5 --tokens 64 --rows 4 --validate 3 --validate-every 16)
ranked() { # RANKS ARGUMENTS...
  local n=$1
  shift
  timeout 120 "$root/scripts/cluster/local.sh" --ranks "$n" -- "${arguments[@]}" "$@"
}
# victim prints the process of one rank of the run in the background.
victim() { # RANK NAME
  local pid
  for pid in $(pgrep -f -- "$2"); do
    if [ -r "/proc/$pid/environ" ] && tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1"; then
      echo "$pid"
      return
    fi
  done
}

export GOMAXPROCS=1 # a rank is a thread
bin/train "${arguments[@]}" --out "$work/1" >"$work/log" 2>&1 || { cat "$work/log"; die "one process"; }
for n in 2 4; do
  ranked "$n" --out "$work/$n" >"$work/log" 2>&1 || { cat "$work/log"; die "$n ranks"; }
  diff -r "$work/1" "$work/$n" || die "$n ranks made another adapter than one process"
  echo "$n ranks: the adapter of one process"
done

killed=0
for moment in $(seq 1 "$kills"); do
  ranked $((moment % 3 + 2)) --out "$work/k" --run "$work/killed" --checkpoint-every 2 --resume >"$work/log" 2>&1 &
  running=$!
  while kill -0 "$running" 2>/dev/null && [ "$(cat "$work/killed/steps.jsonl" 2>/dev/null | wc -l)" -lt $((4 * moment)) ]; do sleep 0.02; done
  pid=$(victim $((moment % 2)) "$work/killed")
  [ -z "$pid" ] || { kill -9 "$pid" && killed=$((killed + 1)); }
  wait "$running" && break
done
running=''
[ "$killed" -ge 8 ] || { cat "$work/log"; die "ranks were killed $killed times, want at least 8"; }
ranked 4 --out "$work/k" --run "$work/killed" --checkpoint-every 2 --resume >"$work/log" 2>&1 || { cat "$work/log"; die "the last ranks"; }
diff -r "$work/1" "$work/k" || die "ranks that were killed made another adapter"
echo "killed $killed times, on 2 to 4 ranks: the adapter of one process"

timeout 120 scripts/cluster/local.sh --ranks 3 -- "${arguments[@]}" --steps 100000 --validate-every 0 --out "$work/s" --run "$work/stopped" >"$work/log" 2>&1 &
running=$!
until [ -s "$work/stopped/steps.jsonl" ] || ! kill -0 "$running" 2>/dev/null; do sleep 0.05; done
pid=$(victim 2 "$work/stopped")
[ -n "$pid" ] || { cat "$work/log"; die "no rank 2"; }
begin=$SECONDS
kill -STOP "$pid"
! wait "$running" || die "a run one of whose ranks was stopped ended well"
running=''
took=$((SECONDS - begin))
grep -q "rank 2 (pid $pid on .*silent for" "$work/log" || { cat "$work/log"; die "the rank that was stopped is not named"; }
[ "$took" -le 30 ] || die "a rank that was stopped was noticed after $took s, want 30 at most"
echo "a rank that was stopped: named after $took s"
