"""What lab/reference/reference_claims.py and lab/smollm2/results.py share: the measures of a run's folder, paired
differences and tests of them. Needs nothing but Python."""

import collections
import glob
import itertools
import json
import math
import os
import random

# What cannot be deployed: it sees the response, or reads everything to choose what to read.
BOUNDS = {"full", "oracle", "exact-topk"}
# Policies that choose once, after the prompt, what stays.
PREFILL = ("random", "streamingllm", "knorm", "h2o", "tova", "roco", "lacache", "snapkv", "pyramidkv", "adakv", "compose",
           "dapq", "laq", "laq++", "speckv", "duoattention", "judgeq", "lookaheadkv")


def predictions(folder):
    """The rows of a run's folder: policy, budget ("0": none), task, groups, sample, measures. Of a run that goes on those that are there."""
    files = [os.path.join(folder, "predictions.jsonl")]
    if not os.path.exists(files[0]):
        files = sorted(glob.glob(os.path.join(folder, ".work", "results", "*")))
    for p in (json.loads(line) for file in files for line in open(file)):
        if "measures" in p:
            # The run's own adapters are named in their policies; one draft is the draft.
            adapter = p.get("adapter", "")
            name = p["policy"] + ("/" + adapter if adapter not in p["policy"] and p["policy"] != "speckv" else "")
            groups = [(g["key"], g["value"]) for g in p.get("groups", [])]
            yield name, str(p.get("budget", "0")), p["task"], groups, p["sample"], dict(p["measures"], score=p["measures"].get(p["metric"]))


class Run:
    """Measures of [predictions] by policy, budget, task and sample; with the key of a group, as length, every value of it is a task
    of its own: "niah 1024"."""

    def __init__(self, rows, group=None):
        self.of = collections.defaultdict(lambda: collections.defaultdict(dict))
        for policy, budget, task, groups, sample, measures in rows:
            self.of[policy, budget][" ".join([task, *(value for key, value in groups if key == group)])][sample] = measures
        self.tasks = sorted(self.of["full", "0"]) if ("full", "0") in self.of else sorted(next(iter(self.of.values())))
        self.budgets = sorted({b for _, b in self.of if b != "0"}, key=lambda b: float(b.rstrip("%")))
        self.policies = sorted({p for p, _ in self.of})

    def cell(self, policy, budget):
        return self.of.get((policy, str(budget))) or self.of.get((policy, "0"))

    def has(self, policy, budget):
        return self.cell(policy, budget) is not None

    def mean(self, policy, budget, what="score", tasks=None):
        """The mean over tasks and its standard error."""
        return average([[s[what] for s in self.cell(policy, budget)[t].values() if s.get(what) is not None] for t in tasks or self.tasks])

    def differences(self, one, other, what="score", tasks=None):
        """one − other on the prompts that both have, (policy, budget) each: a list for every task."""
        parts = []
        for t in tasks or self.tasks:
            a, b = self.cell(*one)[t], self.cell(*other)[t]
            parts.append([a[i][what] - b[i][what] for i in a if i in b and a[i].get(what) is not None and b[i].get(what) is not None])
        return parts

    def difference(self, one, other, what="score", tasks=None):
        """The mean of one − other over the same prompts, and its standard error."""
        return average(self.differences(one, other, what, tasks))


def average(parts):
    parts = [p for p in parts if p]
    if not parts:
        return math.nan, math.nan
    mean, variance = 0.0, 0.0
    for p in parts:
        m = sum(p) / len(p)
        mean += m / len(parts)
        if len(p) > 1:
            variance += sum((x - m) ** 2 for x in p) / (len(p) - 1) / len(p)
    return mean, math.sqrt(variance) / len(parts)


def percent(value):
    return f"{100 * value[0]:.1f} ± {100 * value[1]:.1f}"


FLIPS = 9999  # random sign flips of a permutation test
EXACT = 16  # differences up to which all flips are tried


def permutation(parts, above=0.0):
    """The two-sided p of a paired permutation test that the mean over tasks differs from above: all sign flips of up
    to 16 differences that are not 0, else 9,999 seeded ones, as evict report does it. 1 where no difference is left,
    nan below two pairs."""
    parts = [[x - above for x in p] for p in parts if p]
    if sum(map(len, parts)) < 2:
        return math.nan
    d = [x / len(p) for p in parts for x in p if x != 0]
    extreme = abs(sum(d)) * (1 - 1e-12)
    if len(d) <= EXACT:
        return sum(abs(sum(f)) >= extreme for f in itertools.product(*((x, -x) for x in d))) / 2 ** len(d)
    # The sums of eight differences under each of their 256 flips.
    eights = [[sum(f) for f in itertools.product(*((x, -x) for x in d[i : i + 8]))] for i in range(0, len(d), 8)]
    rng = random.Random(1)
    count = 1
    for _ in range(FLIPS):
        count += abs(sum(e[bits % len(e)] for e, bits in zip(eights, rng.randbytes(len(eights))))) >= extreme
    return count / (FLIPS + 1)


def holm(p):
    """p corrected for so many tests by Holm's method."""
    out, before = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        before = out[i] = max(before, min(1.0, p[i] * (len(p) - rank)))
    return out
