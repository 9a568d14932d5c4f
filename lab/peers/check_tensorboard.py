#!/usr/bin/env python3
"""Reads a run's TensorBoard events back with the real package and compares every value
with the run's steps.jsonl.

    pip install tensorboard
    bin/train run scripts/examples/run.yaml
    lab/peers/check_tensorboard.py out/three
"""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main(run):
    with open(f"{run}/steps.jsonl", encoding="utf-8") as lines:
        steps = [json.loads(line) for line in lines]
    want = {}
    for step in steps:
        for a in step["adapters"]:
            if a.get("skipped"):
                continue
            for tag, key in (("loss", "loss"), ("gradient_norm", "grad_norm"), ("learning_rate", "learning_rate")):
                want[f"{tag}/{a['name']}", step["step"]] = a[key]
        v = step.get("validation")
        for q in [*v["adapters"], v["snapkv"]] if v else []:
            if q["name"] != "snapkv":
                want[f"validation_loss/{q['name']}", step["step"]] = q["loss"]
            if q["tau"] is not None:
                want[f"validation_tau/{q['name']}", step["step"]] = q["tau"]
            for budget, hits, recall in zip(v["budgets"], q["hit_rate"], q["recall"]):
                if hits is not None:
                    want[f"validation_hit_rate_{budget}/{q['name']}", step["step"]] = hits
                    want[f"validation_recall_{budget}/{q['name']}", step["step"]] = recall
    events = EventAccumulator(run, size_guidance={"scalars": 0})
    events.Reload()
    got = {(tag, e.step): e.value for tag in events.Tags()["scalars"] for e in events.Scalars(tag)}
    problems = [f"{key}: missing" for key in want.keys() - got.keys()]
    problems += [f"{key}: surplus" for key in got.keys() - want.keys()]
    for key in want.keys() & got.keys():
        if abs(got[key] - want[key]) > 1e-5 * abs(want[key]) + 1e-9:
            problems.append(f"{key}: got {got[key]}, want {want[key]}")
    if problems or not want:
        sys.exit("check_tensorboard: " + "\n".join(sorted(problems)[:20] or ["no steps"]))
    print(f"check_tensorboard: {len(want)} values of {len({tag for tag, _ in want})} curves over {len(steps)} steps agree")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
