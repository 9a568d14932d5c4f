#!/usr/bin/env python3
"""What the stages of lab/smollm2/results.sh have measured, without prompts and answers and so small that it is
committed: measured/STAGE.xz for each, or STAGE.IofN.xz for every part of a long one.

    python3 lab/smollm2/measured.py keep RUNS             # takes over what is finished of the folder RUNS
    python3 lab/smollm2/measured.py lacking STAGE POLICY… # prints the policies that are not in it, a line each

A row takes the place of the one of the same policy, budget and prompt; other rows stay, so that a stage can grow.
Needs nothing but Python.
"""

import datetime
import glob
import json
import lzma
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reference"))
from results_runs import predictions

FOLDER = os.path.join(HERE, "measured")
CACHES = ("float32", "bf16", "q8_0", "fp8", "q5_1", "q4_1", "kivi4", "q4_0")  # types of caches, a stage each
RUNS = ("needle", "ruler", "longbench", "documents", "longbench-budgets", "documents-budgets", "turns", "latency", "length", "ablations", *(f"{s}-{t}" for s in ("caches", "news") for t in CACHES))
TRAININGS = ("rates", "adapters")


def text_of(*names):
    """The text of a file; None where there is none."""
    try:
        with open(os.path.join(*names)) as f:
            return f.read()
    except FileNotFoundError:
        return None


def stage(folder, name):
    """A stage, or a part of one, as measured/ has it, of a folder of runs: {"origins": […], "rows": […]} or
    {…, "training": {…}}; None where it is not finished."""
    whole, _, part = name.partition(".")
    done, source = os.path.join(folder, "done", name), os.path.join(folder, whole)
    if part:
        i, n = map(int, part.split("of"))
        source = os.path.join(source, f"shard-{i:05d}-of-{n:05d}")
    file = os.path.join(source, "predictions.jsonl" if whole in RUNS else "steps.jsonl")
    if not os.path.exists(done) or not os.path.exists(file):
        return None
    environment = json.loads(text_of(source, "environment.json") or "{}")
    took = [line.split() for line in (text_of(folder, "times") or "").splitlines() if line.split()[:1] == [name]]
    origin = {"day": f"{datetime.datetime.fromtimestamp(os.path.getmtime(done), datetime.timezone.utc):%Y-%m-%d}",
              "commit": (text_of(folder, whole + ".commit") or "").strip(), "seconds": sum(int(t[1]) for t in took), "cores": took[-1][2] if took else "",
              "system": ", ".join(environment[k] for k in ("system", "go") if k in environment)}
    if whole in RUNS:
        return {"origins": [origin], "rows": list(predictions(source))}
    steps = [json.loads(line) for line in text_of(file).splitlines()]
    last = [s["validation"] for s in steps if "validation" in s][-1]
    rates = {a["name"]: max(x["learning_rate"] for s in steps for x in s["adapters"] if x["name"] == a["name"]) for a in last["adapters"]}
    return {"origins": [origin], "training": {"steps": len(steps), "samples": sum(s["samples"] for s in steps),
                                              "seconds": sum(s["seconds"] for s in steps), "rates": rates, "validation": last}}


def names(folder, name, suffix=""):
    """The parts of a stage that folder has files of, or else the stage."""
    parts = glob.glob(f"{glob.escape(os.path.join(folder, name))}.*of*{suffix}")
    return sorted(os.path.basename(p).removesuffix(suffix) for p in parts) or [name]


def parts(kept, runs, name):
    """The parts of a stage that are kept or measured since, or else the stage."""
    there = {*names(kept, name, ".xz"), *names(os.path.join(runs, "done"), name)}
    return sorted(p for p in there if "." in p) or [name]


def known(kept, runs, name):
    """What there is of a stage, with all its parts: what is kept, and in its place what was measured since."""
    whole = None
    for part in parts(kept, runs, name):
        here = merged(load(kept, part), stage(runs, part))
        if whole and here:
            here = {"origins": whole["origins"] + here["origins"], "rows": whole["rows"] + here["rows"]}
        whole = here or whole
    return whole


def load(folder, name):
    """A stage or part of measured/; None where it has none."""
    try:
        with lzma.open(os.path.join(folder, name + ".xz"), "rt") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def merged(old, new):
    """A stage of measured/ with what was measured since; either may be None."""
    if not old or not new or "training" in new:
        return new or old
    key = lambda row: json.dumps(row[:5])
    there = {key(row) for row in new["rows"]}
    left = [row for row in old["rows"] if key(row) not in there]
    origins = [o for o in old["origins"] if o not in new["origins"]] if left else []
    return {"origins": origins + new["origins"], "rows": left + new["rows"]}


def rounded(row):
    *key, measures = row
    return [*key, {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in measures.items() if v is not None}]


def keep(runs, folder):
    os.makedirs(folder, exist_ok=True)
    for name in [part for s in RUNS + TRAININGS for part in names(os.path.join(runs, "done"), s)]:
        new = stage(runs, name)
        if not new:
            continue
        if "rows" in new:
            new["rows"] = [rounded(r) for r in new["rows"]]
        data = lzma.compress(json.dumps(merged(load(folder, name), new), separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)
        path = os.path.join(folder, name + ".xz")
        with open(path + ".new", "wb") as f:
            f.write(data)
        os.replace(path + ".new", path)
        print(f"{path}: {len(data)} bytes")


def main():
    match sys.argv[1:]:
        case ["keep", runs] if os.path.isdir(runs):
            keep(runs, FOLDER)
        case ["lacking", name, *policies]:
            there = {row[0] for row in (load(FOLDER, name) or {"rows": []})["rows"]}
            print("".join(p + "\n" for p in policies if p not in there), end="")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
