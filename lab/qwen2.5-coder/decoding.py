#!/usr/bin/env python3
"""The table of lab/results/decoding.md: policies that evict while decoding, compared problem by problem.

    python3 lab/qwen2.5-coder/decoding.py RUN [AGAINST]

RUN is the folder of an "evict eval" with --agreement on; one that goes on is read as far as it is. Each number is a mean with its standard
error: of right answers, and of the negative log-likelihood of the full cache's answer, in nats a token, above the full cache's own. Beside
them are the differences to the policy AGAINST, random(decode=1). A budget at which nothing differs from the full cache is left out. Needs
nothing but Python.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
from results_runs import Run, predictions

FULL = ("full", "0")


def pair(mean_and_error, scale, digits):
    """A mean with its standard error as text."""
    mean, error = mean_and_error
    return f"{scale * mean:.{digits}f} ± {scale * error:.{digits}f}"


def main(folder, against="random(decode=1)"):
    run = Run(predictions(folder))
    answers = run.cell(*FULL)[run.tasks[0]].values()
    print(f"{len(answers)} problems; full cache {pair(run.mean(*FULL), 100, 1)}% right, {pair(run.mean(*FULL, 'answer_tokens'), 1, 0)} tokens\n")
    print(f"| B | policy | right, % | points to `{against}` | nats above the full cache | nats to `{against}` | tokens |")
    print("|---:|:---|---:|---:|---:|---:|---:|")
    for budget in run.budgets:
        above = {p: run.difference((p, budget), FULL, "nll") for p in run.policies if p != "full"}
        if not any(mean for mean, _ in above.values()):
            continue
        for policy in sorted(above, key=lambda p: above[p][0]):
            one, other = (policy, budget), (against, budget)
            points, nats = (pair(run.difference(one, other), 100, 1), pair(run.difference(one, other, "nll"), 1, 3)) if policy != against else ("", "")
            print(f"| {budget} | `{policy}` | {pair(run.mean(*one), 100, 1)} | {points} | {pair(above[policy], 1, 3)} | {nats} | {run.mean(*one, 'answer_tokens')[0]:.0f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
