#!/usr/bin/env python3
"""Check that the built-in reference model answers its tasks.

    python3 scripts/check_reference_model.py [EXAMPLES_PER_TASK]

Prompts come from the Go generator, answers from a numpy forward pass over the
bfloat16 weights, so a mistake in the generator, the vocabulary or the conversion
shows as wrong answers. Exits 1 if a task is answered worse than its floor. Needs
numpy and the Go toolchain; a few seconds for 10 examples per task.
"""

import json
import os
import subprocess
import sys
import time

# The matrices are small: more threads only get in each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from reference_numpy import Model

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Share of right answers that each task must reach: below what was measured on 64
# examples (README.md of the model's folder), by the noise of ten.
FLOOR = {
    "single": 0.9, "ask1": 0.8, "ask4": 0.8, "chain": 0.8, "copy": 0.8,
    "q_single": 0.9, "q_copy": 0.8, "marks": 0.4, "q_marks": 0.4,
}


def main():
    per_task = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    command = ["go", "run", "./scripts/examples", "-tasks", ",".join(FLOOR), "-per-task", str(per_task)]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    model = Model(os.path.join(ROOT, "model", "builtin", "reference"), np.float32)
    right, total, start = dict.fromkeys(FLOOR, 0), dict.fromkeys(FLOOR, 0), time.time()
    for line in lines:
        example = json.loads(line)
        _, answer, _ = model.greedy(example["prompt_ids"], len(example["answer_ids"]) + 1)
        right[example["task"]] += answer == example["answer_ids"]
        total[example["task"]] += 1
    failed = False
    for task, floor in FLOOR.items():
        share = right[task] / total[task]
        failed |= share < floor
        print(f"{task:10} {right[task]:4}/{total[task]:<4} {share:.3f}  floor {floor:.2f}{'  TOO LOW' if share < floor else ''}")
    print(f"{'mean':10} {'':9} {np.mean([right[t] / total[t] for t in FLOOR]):.3f}  ({time.time() - start:.1f} s)")
    sys.exit(failed)


if __name__ == "__main__":
    main()
