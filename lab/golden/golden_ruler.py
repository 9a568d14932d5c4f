#!/usr/bin/env python3
"""Writes evaluation/tasks/testdata/ruler.json: what RULER's 13 tasks are made of. The argument
is the folder scripts of github.com/NVIDIA/RULER. Of its texts only the SHA-256 is kept."""
import hashlib
import importlib.util
import json
import os
import re
import sys

scripts = sys.argv[1]


def load(path):
    spec = importlib.util.spec_from_file_location("constants", os.path.join(scripts, path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


data, rules = load("data/synthetic/constants.py").TASKS, load("eval/synthetic/constants.py").TASKS
tasks, name = {}, None
with open(os.path.join(scripts, "synthetic.yaml")) as f:
    for line in f.read().split("\n"):
        if re.match(r"\w+:$", line):
            name = line[:-1]
            tasks[name] = {"args": {}}
        elif m := re.match(r"  task: (\w+)", line):
            kind = m[1]
            tasks[name].update(
                kind=kind, tokens=data[kind]["tokens_to_generate"], metric=rules[kind]["metric_fn"].__name__,
                text=hashlib.sha256((data[kind]["template"] + data[kind]["answer_prefix"]).encode()).hexdigest())
        elif m := re.match(r"    (\w+): (.+)", line):
            tasks[name]["args"][m[1]] = m[2].strip()
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "..", "..", "evaluation", "tasks", "testdata", "ruler.json"), "w") as f:
    json.dump(tasks, f, indent=1)
    f.write("\n")
