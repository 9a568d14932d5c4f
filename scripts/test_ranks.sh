#!/usr/bin/env bash
# Several processes of one command. Training over Open MPI: the bytes of one process on 2 and 4 ranks, also after one of them was
# killed again and again; and a rank that was stopped is named. Generation and evaluation by processes that share a folder, or
# a folder of an S3 server: the bytes of one process, also where some were killed.
# Installs Open MPI from Debian where it is missing and that is allowed.
#
#   ./scripts/test_ranks.sh
#   ./scripts/test_ranks.sh --brief   # what .ci/run does: fewer kills, and two processes at a time or three
set -euo pipefail
source "$(dirname "$0")/common.sh"

if ! command -v mpirun >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get update && apt-get install -y --no-install-recommends openmpi-bin; } >/dev/null 2>&1 || true
fi
command -v mpirun >/dev/null || die "mpirun is missing: apt-get install openmpi-bin"
[ -x bin/train ] && [ -x bin/evict ] || die "bin/train or bin/evict is missing: make build"

work=$(mktemp -d)
running=''
trap '[ -z "$running" ] || kill "$running" 2>/dev/null || true; [ ! -e "$work/s3/pid" ] || scripts/s3_server.sh stop "$work/s3"; rm -rf "$work"' EXIT
steps=120 kills=10 together_kills=6 counts=(2 4)
if [ "${1:-}" = --brief ]; then
  kills=3 together_kills=2 counts=(2)
fi
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

# together runs a command in so many processes at once; the first of them is killed after so many seconds, 0: none is.
together() { # PROCESSES SECONDS PROGRAM ARGUMENTS...
  local n=$1 seconds=$2 i pids=() failed=''
  shift 2
  for i in $(seq "$n"); do
    "$root/bin/$1" "${@:2}" >"$work/out.$i" 2>"$work/log.$i" &
    pids+=($!)
  done
  if [ "$seconds" != 0 ]; then
    sleep "$seconds"
    kill -9 "${pids[0]}" 2>/dev/null && killed=$((killed + 1))
  fi
  for i in $(seq "$n"); do
    wait "${pids[$((i - 1))]}" || [ "$seconds" != 0 -a "$i" = 1 ] || failed=$i
  done
  [ -z "$failed" ] || { cat "$work/log.$failed"; die "process $failed of $n: $*"; }
}

generate=(generate --samples 400 --tokens 64 --max-new 24 --temperature 0.8)
bin/train "${generate[@]}" --out "$work/1.jsonl" >"$work/log" 2>&1 || { cat "$work/log"; die "generation in one process"; }
bin/train "${generate[@]}" --shards 2 --out "$work/shards" >"$work/log" 2>&1 || { cat "$work/log"; die "shards in one process"; }
evaluate=(eval --policy full,snapkv,lookaheadkv --budget 16,32 --tokens 96 --task section,needle --samples 24 --inspect 2)
bin/evict "${evaluate[@]}" --out "$work/one" >"$work/one.txt" 2>"$work/log" || { cat "$work/log"; die "evaluation in one process"; }
same_evaluation() { # FOLDER WHAT
  local name
  for name in predictions.jsonl metrics.json kept.jsonl environment.json; do
    cmp "$work/one/$name" "$1/$name" || die "$2 made another $name than one process"
  done
}
for n in "${counts[@]}"; do
  together "$n" 0 train "${generate[@]}" --resume --out "$work/$n.jsonl"
  cmp "$work/1.jsonl" "$work/$n.jsonl" || die "$n processes made other samples than one"
  together "$n" 0 evict "${evaluate[@]}" --resume --out "$work/eval$n"
  same_evaluation "$work/eval$n" "$n processes"
  cat "$work"/out.* | head -n "$(wc -l <"$work/one.txt")" | diff "$work/one.txt" - || die "$n processes printed other tables than one"
  rm "$work"/out.*
  echo "$n processes in a folder: the samples and the evaluation of one"
done
# mpirun's processes are just such ones.
timeout 120 scripts/cluster/local.sh --ranks 3 -- "${generate[@]}" --resume --out "$work/mpi.jsonl" >"$work/log" 2>&1 || { cat "$work/log"; die "generation by mpirun"; }
cmp "$work/1.jsonl" "$work/mpi.jsonl" || die "mpirun's processes made other samples than one"
timeout 120 scripts/cluster/local.sh --ranks 3 -- "${evaluate[@]}" --resume --out "$work/mpi" >"$work/log" 2>&1 || { cat "$work/log"; die "evaluation by mpirun"; }
same_evaluation "$work/mpi" "mpirun's processes"
echo "3 processes of mpirun: the samples and the evaluation of one"

killed=0
for try in $(seq 1 8); do
  together 3 "0.$((try * 2 + 3))" train "${generate[@]}" --resume --out "$work/k.jsonl"
  cmp "$work/1.jsonl" "$work/k.jsonl" || die "processes one of which was killed made other samples"
  together 3 "0.$((try * 2 + 3))" evict "${evaluate[@]}" --resume --out "$work/killed"
  same_evaluation "$work/killed" "processes one of which was killed"
  [ ! -e "$work/.k.jsonl.work" ] && [ ! -e "$work/killed/.work" ] || die "work is left: $(ls -A "$work" "$work/killed")"
  rm -r "$work/k.jsonl" "$work/killed"
  [ "$killed" -lt $together_kills ] || break
done
[ "$killed" -ge $together_kills ] || die "processes were killed $killed times, want $together_kills"
echo "killed $killed times, one of 3 processes: the samples and the evaluation of one"

eval "$(scripts/s3_server.sh start "$work/s3")"
together 3 0 train "${generate[@]}" --shards 2 --out s3://demo/samples
together 3 0 evict "${evaluate[@]}" --out s3://demo/eval
for shard in 0 1; do
  name=pairs-0000$shard-of-00002.jsonl
  cmp "$work/shards/$name" "$work/s3/objects/demo/samples/$name" || die "processes on a bucket made other samples than one in a folder"
done
same_evaluation "$work/s3/objects/demo/eval" "processes on a bucket"
echo "3 processes on an S3 server: the samples and the evaluation of one"

# Processes with other command lines are refused, and those that have no output to meet in.
other=("${evaluate[@]}" --resume --out "$work/other" --samples 200)
bin/evict "${other[@]}" >"$work/log" 2>&1 &
running=$!
until [ -e "$work/other/config.yaml" ] || ! kill -0 "$running" 2>/dev/null; do sleep 0.02; done
code=0
timeout 60 bin/evict "${other[@]}" --seed 7 >"$work/log.other" 2>&1 || code=$?
kill "$running" 2>/dev/null || true
wait "$running" || true
running=''
[ "$code" != 0 ] && grep -q 'begun with other settings: seed (was 1, is 7)' "$work/log.other" || { cat "$work/log.other"; die "a process with another seed: exit code $code, want another and the setting"; }
echo "a process with other settings: refused"

code=0
timeout 60 scripts/cluster/local.sh --ranks 2 -- "${evaluate[@]}" >"$work/log" 2>&1 || code=$?
[ "$code" != 0 ] && [ "$(grep -c 'or with --out, through which they share the work' "$work/log")" = 1 ] || { cat "$work/log"; die "an evaluation without --out: exit code $code, want another and one line that says why"; }

code=0
timeout 60 scripts/cluster/local.sh --ranks 2 -- plan >"$work/log" 2>&1 || code=$?
[ "$code" != 0 ] && [ "$(grep -c 'mpirun has started 2 processes' "$work/log")" = 1 ] || { cat "$work/log"; die "a command that knows nothing of ranks: exit code $code, want another and one line that says why"; }
