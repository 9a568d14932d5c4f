#!/usr/bin/env python3
"""Check the papers' claims on what scripts/reference_results.sh has measured.

    python3 scripts/reference_claims.py DIR

DIR has the runs test_512, test_2048, ablations_512, ablations_2048, compositions and latency. Prints Markdown:
every claim with its numbers and whether it holds, then the scores of every policy and task. Differences are
of the same prompts: their standard errors are those of paired differences, averaged over tasks. Needs nothing
but Python.
"""

import collections
import json
import math
import os
import sys

# What cannot be deployed: it sees the response, or reads everything to choose what to read.
BOUNDS = {"full", "oracle", "exact-topk"}
# Policies that choose once, after the prompt, what stays.
PREFILL = ("random", "streamingllm", "knorm", "h2o", "tova", "roco", "lacache", "snapkv", "pyramidkv", "adakv", "compose",
           "dapq", "laq", "laq++", "speckv", "duoattention", "judgeq", "lookaheadkv")


class Run:
    """Measures by policy, budget, task and sample."""

    def __init__(self, folder):
        self.of = collections.defaultdict(lambda: collections.defaultdict(dict))
        self.metric = {}
        with open(os.path.join(folder, "predictions.jsonl")) as lines:
            for line in lines:
                p = json.loads(line)
                if "measures" not in p:
                    continue
                # The run's own adapters are named as their policies; one draft is the draft.
                adapter = p.get("adapter", "")
                name = p["policy"] + ("/" + adapter if adapter not in ("", p["policy"]) and p["policy"] != "speckv" else "")
                m = dict(p["measures"], score=p["measures"].get(p["metric"]))
                self.of[name, str(p.get("budget", "0"))][p["task"]][p["sample"]] = m
        self.tasks = sorted(self.of["full", "0"]) if ("full", "0") in self.of else sorted(next(iter(self.of.values())))
        self.budgets = sorted({b for _, b in self.of if b != "0"}, key=int)
        self.policies = sorted({p for p, _ in self.of})

    def cell(self, policy, budget):
        return self.of.get((policy, str(budget))) or self.of.get((policy, "0"))

    def has(self, policy, budget):
        return self.cell(policy, budget) is not None

    def mean(self, policy, budget, what="score", tasks=None):
        """The mean over tasks and its standard error."""
        return average([[s[what] for s in self.cell(policy, budget)[t].values() if s.get(what) is not None] for t in tasks or self.tasks])

    def difference(self, one, other, what="score", tasks=None):
        """The mean of one − other over the same prompts, (policy, budget) each, and its standard error."""
        parts = []
        for t in tasks or self.tasks:
            a, b = self.cell(*one)[t], self.cell(*other)[t]
            parts.append([a[i][what] - b[i][what] for i in a if i in b and a[i].get(what) is not None and b[i].get(what) is not None])
        return average(parts)


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


claims = []


def claim(text, holds, numbers):
    claims.append((text, {True: "holds", False: "does not hold", None: "reported"}[holds], numbers))


def order(run, length, budgets, strict):
    """Claim 1: LookaheadKV above every other deployable prefill policy, from the budget `strict` on."""
    for b in budgets:
        others = [p for p in PREFILL if p != "lookaheadkv" and run.has(p, b)]
        best = max(others, key=lambda p: run.mean(p, b)[0])
        d = run.difference(("lookaheadkv", b), (best, b))
        if b >= strict:
            claim(f"{length} tokens, B = {b}: LookaheadKV above every other prefill policy", d[0] > 0,
                  f"LookaheadKV {percent(run.mean('lookaheadkv', b))}, next {best} {percent(run.mean(best, b))}, difference {percent(d)}")
            continue
        d = run.difference(("lookaheadkv", b), ("snapkv", b))
        more = "; ".join(f"over {p} {percent(run.difference(('lookaheadkv', b), (p, b)))}" for p in ("laq", "rocketkv") if run.has(p, b))
        claim(f"{length} tokens, B = {b}: LookaheadKV at least SnapKV", d[0] >= 0,
              f"LookaheadKV {percent(run.mean('lookaheadkv', b))}, difference to SnapKV {percent(d)}; {more}; best other: {best}")


def compare(run, title, one, other, budgets, holds=None):
    for b in budgets:
        if run.has(one, b) and run.has(other, b):
            d = run.difference((one, b), (other, b))
            claim(f"{title}, B = {b}", holds(d) if holds else None,
                  f"{one} {percent(run.mean(one, b))}, {other} {percent(run.mean(other, b))}, difference {percent(d)}")


def frontier(run, single, composed, bytes_of):
    """Each composition against the best single method that has at most as many bytes."""
    for c in composed:
        for b in run.budgets:
            if not run.has(c, b):
                continue
            cost = run.mean(c, b, bytes_of)[0]
            rivals = [(p, x) for p in single for x in run.budgets if run.has(p, x) and run.mean(p, x, bytes_of)[0] <= cost * 1.001]
            if not rivals:
                continue
            best = max(rivals, key=lambda r: run.mean(*r)[0])
            d = run.difference((c, b), best)
            yield c, b, cost, best, d


def table(run, budgets):
    print("| policy | B | " + " | ".join(run.tasks) + " | mean | hits | KiB held | KiB read a token |")
    print("|---|---|" + "---|" * (len(run.tasks) + 4))
    for p in run.policies:
        for b in (budgets if p != "full" else budgets[:1]):
            if not run.has(p, b):
                continue
            scores = " | ".join(f"{100 * run.mean(p, b, tasks=[t])[0]:.0f}" for t in run.tasks)
            hits = run.mean(p, b, "hit_rate")
            print(f"| {p} | {'' if p == 'full' else b} | {scores} | {percent(run.mean(p, b))} | {'–' if math.isnan(hits[0]) else f'{100 * hits[0]:.0f}'} | "
                  f"{run.mean(p, b, 'kept_bytes')[0] / 1024:.0f} | {run.mean(p, b, 'traffic_bytes_per_step')[0] / 1024:.0f} |")
    print()


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    folder = sys.argv[1]
    runs = {n: Run(os.path.join(folder, n)) for n in ("test_512", "test_2048", "ablations_512", "ablations_2048", "compositions", "latency")
            if os.path.exists(os.path.join(folder, n, "predictions.jsonl"))}
    if "test_512" not in runs:
        sys.exit(f"reference_claims: {folder}: test_512/predictions.jsonl is missing: run scripts/reference_results.sh")
    short, budgets = runs["test_512"], [int(b) for b in runs["test_512"].budgets]

    order(short, 512, budgets, 96)
    if "test_2048" in runs:
        order(runs["test_2048"], "2,048", [int(b) for b in runs["test_2048"].budgets], 0)
    share = short.mean("lookaheadkv", budgets[-1])[0] / short.mean("full", 0)[0]
    claim(f"LookaheadKV has at least 97% of the full cache's answers at B = {budgets[-1]} of 512", share >= 0.97, f"{100 * share:.1f}%")

    for learned in ("lookaheadkv", "judgeq"):
        for b in budgets:
            d = short.difference((learned, b), ("snapkv", b), "hit_rate")
            claim(f"hit rate of {learned} at least 8 points above SnapKV's, B = {b}", d[0] >= 0.08,
                  f"{percent(short.mean(learned, b, 'hit_rate'))} against {percent(short.mean('snapkv', b, 'hit_rate'))}, difference {percent(d)}")

    first = [t for t in short.tasks if t.startswith("q_") and t[2:] in short.tasks]
    last = [t[2:] for t in first]
    for learned in ("lookaheadkv", "judgeq") if first else ():
        for b in budgets:
            lost = {p: short.difference((p, b), ("full", 0), tasks=first)[0] - short.difference((p, b), ("full", 0), tasks=last)[0] for p in ("snapkv", learned)}
            claim(f"question at the start: SnapKV loses more than {learned}, B = {b}", lost["snapkv"] < lost[learned],
                  f"change against the full cache, question first − last: SnapKV {100 * lost['snapkv']:.1f}, {learned} {100 * lost[learned]:.1f} points ({', '.join(last)})")

    d = short.difference(("oracle", budgets[0]), ("full", 0))
    claim(f"the oracle is near the full cache at B = {budgets[0]} (within 5 points)", d[0] >= -0.05, f"difference {percent(d)}")
    compare(short, "LAQ above SnapKV", "laq", "snapkv", budgets, lambda d: d[0] > 0)
    compare(short, "DapQ against SnapKV, each with its chosen pooling", "dapq", "snapkv", budgets)
    compare(short, "D2O against H2O: what merging gains", "d2o", "h2o", budgets)
    for other in ("quest", "sparq"):
        for b in budgets:
            if short.has(other, b) and short.has("rocketkv", b):
                traffic = {p: short.mean(p, b, "traffic_bytes_per_step")[0] / 1024 for p in ("rocketkv", other)}
                d = short.difference(("rocketkv", b), (other, b))
                claim(f"RocketKV against {other}, B = {b}", None,
                      f"difference {percent(d)}; RocketKV reads {traffic['rocketkv']:.0f} KiB a token, {other} {traffic[other]:.0f}")

    if "latency" in runs:
        run = runs["latency"]
        for length in sorted(run.cell("full", 0)["latency"], key=lambda name: int(name.split()[0])):
            added = {p: times["ttft_ms"] - times["plain_ttft_ms"] for p in ("lookaheadkv", "laq", "speckv")
                     if run.has(p, 64) and (times := run.cell(p, 64)["latency"].get(length))}
            if len(added) == 3:
                claim(f"time that is added before the first token, {length}: LookaheadKV less than half of LAQ, LAQ less than SpecKV",
                      added["lookaheadkv"] < 0.5 * added["laq"] and added["laq"] < added["speckv"], ", ".join(f"{p} {v:.1f} ms" for p, v in added.items()))

    beaten = []
    if "compositions" in runs:
        run = runs["compositions"]
        composed = [p for p in run.policies if ":" in p or "scorer=lookaheadkv" in p]
        single = [p for p in run.policies if p not in composed and p not in BOUNDS]
        for bytes_of, text in (("kept_bytes", "held"), ("traffic_bytes_per_step", "read a token")):
            for c, b, cost, best, d in frontier(run, single, composed, bytes_of):
                beaten.append((text, c, b, cost, best, d))

    print("| claim | | numbers |\n|---|---|---|")
    for text, verdict, numbers in claims:
        print(f"| {text} | {verdict} | {numbers} |")
    print(f"\n{sum(v == 'holds' for _, v, _ in claims)} of {sum(v != 'reported' for _, v, _ in claims)} claims hold. Scores are exact answers in %, means over "
          f"{len(short.tasks)} tasks, ± one standard error; differences are of the same prompts.\n")
    if beaten:
        print("Compositions against the best single method that has at most as many bytes:\n\n| bytes | composition | B | KiB | best single | difference |\n|---|---|---|---|---|---|")
        for text, c, b, cost, best, d in beaten:
            print(f"| {text} | {c} | {b} | {cost / 1024:.0f} | {best[0]} at {best[1]} | {percent(d)} |")
        print()
    for name, run in runs.items():
        if name != "latency":
            print(f"### {name}\n")
            table(run, [int(b) for b in run.budgets])


main()
