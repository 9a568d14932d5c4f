#!/usr/bin/env python3
"""Write model/testdata/reference_golden.json: what the Go forward pass of the
built-in reference model is checked against.

    python3 lab/golden/make_reference_golden.py

A prompt of 512 tokens and one of 160 from the Go generator, the float64 logits after the
prompt and after the answer, and the greedy answer. Needs numpy and the Go
toolchain.
"""

import hashlib
import json
import os
import subprocess

import numpy as np

from reference_numpy import Model

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "model", "builtin", "reference")


def digits(logits):
    # Nine significant digits are a float32 exactly.
    return [float(f"{v:.9g}") for v in logits]


def main():
    lines = []
    for task, tokens in (("key4", 512), ("q_section", 160)):
        command = ["go", "run", "./golden/examples", "-tasks", task, "-tokens", str(tokens), "-per-task", "1"]
        lines += subprocess.run(command, cwd=os.path.join(ROOT, "lab"), check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    model = Model(FOLDER, np.float64)
    prompts = []
    for line in lines:
        example = json.loads(line)
        first, answer, last = model.greedy(example["prompt_ids"], len(example["answer_ids"]) + 1)
        prompts.append({
            "id": example["id"],
            "prompt_ids": example["prompt_ids"],
            "logits": digits(first),
            "answer_ids": answer,
            "logits_after_answer": digits(last),
        })
    weights = open(os.path.join(FOLDER, "model.safetensors"), "rb").read()
    golden = {
        "about": "float64 numpy over the bfloat16 weights; written by lab/golden/make_reference_golden.py",
        "files_sha256": hashlib.sha256(weights).hexdigest(),
        "weights_sha256": identity(weights),
        "prompts": prompts,
    }
    path = os.path.join(ROOT, "model", "testdata", "reference_golden.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "w") as f:
        # One array per line: readable, and small.
        text = json.dumps(golden, indent=1)
        f.write(compact(text) + "\n")
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)


def identity(file):
    """Model.SHA256 of a safetensors file all of whose tensors the network reads."""
    n = int.from_bytes(file[:8], "little")
    lines = []
    for name, t in json.loads(file[8 : 8 + n]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            data = hashlib.sha256(file[8 + n + begin : 8 + n + end]).hexdigest()
            lines.append(f"{name} {t['dtype']} [{' '.join(map(str, t['shape']))}] {data}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def compact(text):
    """Join the lines of innermost arrays of numbers."""
    out, depth = [], 0
    for line in text.split("\n"):
        body = line.strip()
        if depth:
            out[-1] += body
            depth -= body.startswith("]")
        else:
            out.append(line)
            depth += body.endswith("[") and not body.startswith('"prompts"')
    return "\n".join(out)


if __name__ == "__main__":
    main()
