#!/usr/bin/env bash
# Training, generation and evaluation over Open MPI with processes of their own: the bytes of one process on 2
# and 4 ranks, also after one of them was killed again and again; and a rank that was stopped is named.
# Installs Open MPI from Debian where it is missing and that is allowed.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if ! command -v mpirun >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update && apt-get install -y --no-install-recommends openmpi-bin; } >/dev/null 2>&1 || true
fi
command -v mpirun >/dev/null || die "mpirun is missing: apt-get install openmpi-bin"
[ -x bin/train ] && [ -x bin/evict ] || die "bin/train or bin/evict is missing: make build"

work=$(mktemp -d)
running=''
trap '[ -z "$running" ] || kill "$running" 2>/dev/null || true; rm -rf "$work"' EXIT
steps=120 kills=10
arguments=(lookahead --steps "$steps" --batch 5 --tokens 64 --rows 4 --validate 3 --validate-every 40)
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

# A run that ends before it is killed is compared, and another begins.
killed=0 run=0 begun=0
steps() { { cat "$work/killed$run/steps.jsonl" 2>/dev/null || true; } | wc -l; }
ends() {
  diff -r "$work/1" "$work/k" || die "ranks that were killed made another adapter"
  rm -r "$work/k"
}
for try in $(seq 1 $((3 * kills))); do
  [ "$killed" -lt "$kills" ] || break
  ranked $((try % 3 + 2)) --out "$work/k" --run "$work/killed$run" --checkpoint-every 2 --resume >"$work/log" 2>&1 &
  running=$!
  while kill -0 "$running" 2>/dev/null && [ "$(steps)" -lt $((begun + 4)) ]; do sleep 0.02; done
  pid=$(victim $((try % 2)) "$work/killed$run")
  [ -z "$pid" ] || ! kill -9 "$pid" 2>/dev/null || killed=$((killed + 1))
  if wait "$running"; then
    ends
    run=$((run + 1))
  fi
  begun=$(steps)
done
running=''
[ "$killed" -ge "$kills" ] || { cat "$work/log"; die "ranks were killed $killed times, want $kills"; }
ranked 4 --out "$work/k" --run "$work/killed$run" --checkpoint-every 2 --resume >"$work/log" 2>&1 || { cat "$work/log"; die "the last ranks"; }
ends
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

generate=(generate --samples 400 --tokens 64 --max-new 24 --temperature 0.8)
bin/train "${generate[@]}" --out "$work/1.jsonl" >"$work/log" 2>&1 || { cat "$work/log"; die "generation in one process"; }
for n in 2 4; do
  timeout 120 scripts/cluster/local.sh --ranks "$n" -- "${generate[@]}" --out "$work/$n.jsonl" >"$work/log" 2>&1 || { cat "$work/log"; die "generation on $n ranks"; }
  cmp "$work/1.jsonl" "$work/$n.jsonl" || die "$n ranks made other pairs than one process"
  echo "$n ranks: the pairs of one process"
done
killed=0
pairs() { { cat "$work/.k.jsonl.partial" 2>/dev/null || true; } | wc -l; }
ends() {
  cmp "$work/1.jsonl" "$work/k.jsonl" || die "ranks that were killed made other pairs"
  rm "$work/k.jsonl"
}
for try in $(seq 1 12); do
  [ "$killed" -lt 4 ] || break
  before=$(pairs)
  timeout 120 scripts/cluster/local.sh --ranks $((try % 3 + 2)) -- "${generate[@]}" --out "$work/k.jsonl" --resume >"$work/log" 2>&1 &
  running=$!
  while kill -0 "$running" 2>/dev/null && [ "$(pairs)" -lt $((before + 20)) ]; do sleep 0.02; done
  pid=$(victim $((try % 2)) "$work/k.jsonl")
  begin=$SECONDS
  [ -z "$pid" ] || ! kill -9 "$pid" 2>/dev/null || killed=$((killed + 1))
  if wait "$running"; then
    ends
  else
    [ $((SECONDS - begin)) -le 30 ] || die "ranks ended $((SECONDS - begin)) s after one of them, want 30 at most"
  fi
done
running=''
[ "$killed" -ge 4 ] || { cat "$work/log"; die "ranks were killed $killed times, want 4"; }
timeout 120 scripts/cluster/local.sh --ranks 3 -- "${generate[@]}" --out "$work/k.jsonl" --resume >"$work/log" 2>&1 || { cat "$work/log"; die "the last ranks"; }
ends
echo "killed $killed times, on 2 to 4 ranks: the pairs of one process"

evaluate=(eval --policy full,snapkv,lookaheadkv --budget 16,32 --tokens 96 --task section,needle --samples 8 --inspect 2)
(cd "$work" && "$root/bin/evict" "${evaluate[@]}" --out one) >"$work/one.txt" 2>"$work/log" || { cat "$work/log"; die "evaluation in one process"; }
for n in 2 4; do
  timeout 120 scripts/cluster/local.sh --ranks "$n" -- "${evaluate[@]}" --out "$work/eval$n" >"$work/eval$n.txt" 2>"$work/log" || { cat "$work/log"; die "evaluation on $n ranks"; }
  for name in predictions.jsonl metrics.json kept.jsonl environment.json; do
    cmp "$work/one/$name" "$work/eval$n/$name" || die "$n ranks made another $name than one process"
  done
  # mpirun's terminal adds carriage returns.
  diff "$work/one.txt" <(tr -d '\r' <"$work/eval$n.txt") || die "$n ranks printed other tables than one process"
  echo "$n ranks: the evaluation of one process"
done

# Ranks with other command lines are refused.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
evaluate=(bin/evict eval --no-progress --task needle --samples 2 --tokens 64 --policy snapkv)
code=0
timeout 60 mpirun --bind-to none -n 1 "${evaluate[@]}" --budget 16 : -n 1 "${evaluate[@]}" --budget 32 --seed 7 >"$work/log" 2>&1 || code=$?
[ "$code" != 0 ] && grep -q 'rank 1 does not have the run of rank 0: budgets.0: got 32, want 16, seed: got 7, want 1' "$work/log" || { cat "$work/log"; die "ranks with other settings: exit code $code, want another and the settings"; }
echo "ranks with other settings: refused"

code=0
timeout 60 scripts/cluster/local.sh --ranks 2 -- plan >"$work/log" 2>&1 || code=$?
[ "$code" != 0 ] && [ "$(grep -c 'mpirun has started 2 processes' "$work/log")" = 1 ] || { cat "$work/log"; die "a command that knows nothing of ranks: exit code $code, want another and one line that says why"; }
