#!/usr/bin/env bash
# Checks that training goes on to the same bits: a run that is stopped after every step
# and one that is killed against one that never stops. About three minutes on a free core.
#
#   PYTHON=/path/to/python lab/reference/model/check_resume.sh [--no-compile]
set -euo pipefail
source "$(dirname "$0")/../../../scripts/common.sh"

python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TORCHINDUCTOR_CACHE_DIR=$work/compiled # once for all runs
options=(--size draft --longest 128 --batch 1024 --tokens 9000 --threads 1 --validate-every 4000 --examples 4 "$@")
train() { # FOLDER MINUTES
  "$python" lab/reference/model/train.py --out "$work/$1" --minutes "$2" "${options[@]}" >>"$work/$1.txt" 2>&1
}

status=0
train whole 60 || status=$?
[ $status = 0 ] || [ $status = 3 ] || die "the run that never stops ended with status $status: $(tail -5 "$work/whole.txt")"

stages=0
for _ in $(seq 30); do
  stages=$((stages + 1))
  status=0
  train stopped 0 || status=$?
  [ $status = 75 ] || break
done
[ $status = 0 ] || [ $status = 3 ] || die "stage $stages ended with status $status: $(tail -5 "$work/stopped.txt")"
[ $stages -gt 4 ] || die "$stages stages, want one for every step"

# Killed outright: it goes on from the last state, here one that it stopped at.
status=0
train killed 0 || status=$?
"$python" lab/reference/model/train.py --out "$work/killed" "${options[@]}" >>"$work/killed.txt" 2>&1 &
child=$!
until grep -q '"validation"' "$work/killed/draft/log.jsonl"; do
  sleep 0.1
  kill -0 $child 2>/dev/null || break
done
kill -KILL $child || true # it may have ended
wait $child 2>/dev/null || true
status=0
train killed 60 || status=$?
[ $status = 0 ] || [ $status = 3 ] || die "after a kill: status $status: $(tail -5 "$work/killed.txt")"

"$python" - "$work" <<'PYTHON'
import json, sys, torch
def read(run):
    state = torch.load(f"{sys.argv[1]}/{run}/draft/state.pt", weights_only=True)
    log = [json.loads(line) for line in open(f"{sys.argv[1]}/{run}/draft/log.jsonl")]
    for line in log:
        line.pop("seconds", None)
    return state, log
want, lines = read("whole")
for run in ("stopped", "killed"):
    got, log = read(run)
    for name, value in want["parameters"].items():
        assert torch.equal(value, got["parameters"][name]), f"{run}: {name} differs"
    for name in ("adamw", "muon"):
        for i, of in want[name]["state"].items():
            for key, value in of.items():
                assert torch.equal(torch.as_tensor(value), torch.as_tensor(got[name]["state"][i][key])), f"{run}: {name} {i} {key} differs"
    assert {**want["state"], "seconds": 0, "log_bytes": 0} == {**got["state"], "seconds": 0, "log_bytes": 0}, f"{run}: the state differs"
    assert log == lines, f"{run}: the log differs"
print(f"check_resume: {want['state']['step']} steps, the same bits after every stop and after a kill")
PYTHON
