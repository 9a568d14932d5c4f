#!/usr/bin/env python3
"""Check the papers' claims on what lab/reference/reference_results.sh has measured.

    python3 lab/reference/reference_claims.py DIR RUN

RUN is a run in the folder DIR: test_512, test_2048, ablations_512, ablations_2048, compositions, merging or
latency.
Prints Markdown: the means of every policy, the claims that the run speaks of, each with its numbers and whether
it holds, then the scores of every task. Differences are of the same prompts: their standard errors are those of
paired differences, averaged over tasks. Needs nothing but Python.
"""

import json
import math
import os
import re
import sys

from results_runs import BOUNDS, PREFILL, Run, percent, predictions

claims = []


def one_turn(run):
    """The tasks of one question: what evicts for good cannot know a second one."""
    return [t for t in run.tasks if not t.startswith("turns_")]


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
                  f"LookaheadKV {percent(run.mean('lookaheadkv', b))}, next {best} {percent(run.mean(best, b))}, difference {percent(d)}; on the tasks of "
                  f"one turn {percent(run.mean('lookaheadkv', b, tasks=one_turn(run)))}, {best} {percent(run.mean(best, b, tasks=one_turn(run)))}")
            continue
        d = run.difference(("lookaheadkv", b), ("snapkv", b))
        more = "; ".join(f"over {p} {percent(run.difference(('lookaheadkv', b), (p, b)))}" for p in ("laq", "rocketkv") if run.has(p, b))
        claim(f"{length} tokens, B = {b}: LookaheadKV at least SnapKV", d[0] >= 0,
              f"LookaheadKV {percent(run.mean('lookaheadkv', b))}, difference to SnapKV {percent(d)}; {more}; best other: {best}")


def compare(run, title, one, other, budgets, holds=None, what="score"):
    for b in budgets:
        if run.has(one, b) and run.has(other, b):
            d = run.difference((one, b), (other, b), what)
            claim(f"{title}, B = {b}", holds(d) if holds else None,
                  f"{one} {percent(run.mean(one, b, what))}, {other} {percent(run.mean(other, b, what))}, difference {percent(d)}")


def frontier(run, single, composed, bytes_of):
    """Each composition against the best single method that has at most as many bytes, and 2% more."""
    for c in composed:
        for b in run.budgets:
            if not run.has(c, b):
                continue
            cost = run.mean(c, b, bytes_of)[0]
            rivals = [(p, x) for p in single for x in run.budgets if run.has(p, x) and run.mean(p, x, bytes_of)[0] <= cost * 1.02]
            if not rivals:
                continue
            best = max(rivals, key=lambda r: run.mean(*r)[0])
            d = run.difference((c, b), best)
            yield c, b, cost, best, d


def means(run):
    """The policies by their mean over tasks and budgets, the best first."""
    print("| policy | " + " | ".join(f"B = {b}" for b in run.budgets) + " | " + " | ".join(f"hits, {b}" for b in run.budgets) + " |")
    print("|:---|" + "---:|" * (2 * len(run.budgets)))

    def over(p):
        at = [b for b in run.budgets if run.has(p, b)]
        return sum(run.mean(p, b)[0] for b in at) / len(at)

    def cells(p, what, write):
        for b in run.budgets:
            value = run.mean(p, b, what) if run.has(p, b) else (math.nan, 0)
            yield "–" if math.isnan(value[0]) else write(value)

    for p in sorted(run.policies, key=over, reverse=True):
        print(f"| {p} | " + " | ".join([*cells(p, "score", percent), *cells(p, "hit_rate", lambda v: f"{100 * v[0]:.0f}")]) + " |")
    print()


def tables(run):
    """The scores of every task, a table for every budget."""
    for b in run.budgets:
        print(f"B = {b}:\n\n| policy | " + " | ".join(run.tasks) + " | mean | KiB held | KiB read a token |")
        print("|:---|" + "---:|" * (len(run.tasks) + 3))
        for p in run.policies:
            if not run.has(p, b):
                continue
            scores = " | ".join(f"{100 * run.mean(p, b, tasks=[t])[0]:.0f}" for t in run.tasks)
            print(f"| {p} | {scores} | {percent(run.mean(p, b))} | {run.mean(p, b, 'kept_bytes')[0] / 1024:.0f} | "
                  f"{run.mean(p, b, 'traffic_bytes_per_step')[0] / 1024:.0f} |")
        print()


def change(run, policy, budget, first, last):
    """What a policy loses against the full cache on some tasks more than on others, and its standard error."""
    (a, x), (b, y) = (run.difference((policy, budget), ("full", 0), tasks=t) for t in (first, last))
    return a - b, math.hypot(x, y)


def policies(run, length):
    """Claims 1 to 5 on the test prompts of one length."""
    budgets = [int(b) for b in run.budgets]
    order(run, length, budgets, 96)
    single = one_turn(run)
    shares = []
    for t in (run.tasks, single):
        full = run.mean("full", 0, tasks=t)[0]
        lost, error = run.difference(("lookaheadkv", budgets[-1]), ("full", 0), tasks=t)
        shares.append((1 + lost / full, error / full))
    claim(f"LookaheadKV has at least 97% of the full cache's answers at B = {budgets[-1]} of {length}", shares[0][0] >= 0.97,
          f"{percent(shares[0])}%; on the {len(single)} tasks of one turn {percent(shares[1])}%")

    for learned in ("lookaheadkv", "judgeq"):
        for b in budgets:
            d = run.difference((learned, b), ("snapkv", b), "hit_rate")
            claim(f"hit rate of {learned} at least 8 points above SnapKV's, B = {b}", d[0] >= 0.08,
                  f"{percent(run.mean(learned, b, 'hit_rate'))} against {percent(run.mean('snapkv', b, 'hit_rate'))}, difference {percent(d)}")

    first = [t for t in run.tasks if t.startswith("q_") and t[2:] in run.tasks]
    last = [t[2:] for t in first]
    for learned in ("lookaheadkv", "judgeq") if first else ():
        for b in budgets:
            lost = {p: change(run, p, b, first, last) for p in ("snapkv", learned)}
            claim(f"question at the start: SnapKV loses more than {learned}, B = {b}", lost["snapkv"][0] < lost[learned][0],
                  f"change against the full cache, question first − last: SnapKV {percent(lost['snapkv'])}, {learned} {percent(lost[learned])} points ({', '.join(last)})")

    d, of_one = (run.difference(("oracle", budgets[0]), ("full", 0), tasks=t) for t in (run.tasks, single))
    claim(f"the oracle is near the full cache at B = {budgets[0]} (within 5 points)", d[0] >= -0.05,
          f"difference {percent(d)}; on the {len(single)} tasks of one turn {percent(of_one)}")
    compare(run, "LAQ above SnapKV", "laq", "snapkv", budgets, lambda d: d[0] > 0)
    compare(run, "DapQ against SnapKV, each with its chosen pooling", "dapq", "snapkv", budgets)
    compare(run, "D2O against H2O", "d2o", "h2o", budgets)
    equal_traffic(run, budgets)


def equal_traffic(run, budgets):
    """RocketKV against Quest and SparQ: each at its budgets, RocketKV at the largest of its own that reads no more, up to 2%."""

    def read(p, b):
        return run.mean(p, b, "traffic_bytes_per_step")[0] / 1024

    for other in ("quest", "sparq"):
        for b in budgets:
            own = [x for x in budgets if run.has("rocketkv", x) and run.has(other, b) and read("rocketkv", x) <= 1.02 * read(other, b)]
            if not own:
                continue
            x = max(own)
            d = run.difference(("rocketkv", x), (other, b))
            claim(f"RocketKV against {other} at equal traffic, {read(other, b):.0f} KiB a token", d[0] > 0,
                  f"rocketkv at {x} {percent(run.mean('rocketkv', x))} with {read('rocketkv', x):.0f} KiB, "
                  f"{other} at {b} {percent(run.mean(other, b))}, difference {percent(d)}")


def merging(run):
    """Claim 5: what merging gains or costs, each part for itself."""
    budgets = [int(b) for b in run.budgets]
    for title, one, other in (
        ("Merging in D2O, against eviction alone", "d2o", "d2o(merge=none)"),
        ("weights by similarity, against equal ones", "d2o", "d2o(merge=average)"),
        ("a threshold, against merging everything", "d2o", "d2o(threshold=none)"),
        ("budgets of layers by variance, against uniform ones", "d2o", "d2o(allocation=uniform)"),
        ("D2O without merging and with uniform budgets, against H2O on all rows", "d2o(allocation=uniform,merge=none)", "h2o(window=0)"),
        ("D2O against H2O on all rows", "d2o", "h2o(window=0)"),
        ("Merging in CaM, against StreamingLLM, which keeps the same", "cam", "streamingllm"),
    ):
        compare(run, title, one, other, budgets)


def ablations(run, folder):
    """The tables of the papers' ablations: rows and modules, numbers of soft tokens, then one change at a time."""
    losses = {}
    for name in ("modules", "rows", "soft_tokens"):
        path = os.path.join(folder, name, "sweep.json")
        if os.path.exists(path):
            with open(path) as f:
                losses.update({r["name"]: r["metrics"]["validation_loss"] for r in json.load(f)})
    grid = {}  # rows and modules at the learning rates that they were trained with
    for p in run.policies:
        m = re.fullmatch(r"(\w+)/\1-n(\d+)-(\w+)-lr([\d.e-]+)", p)
        if m:
            grid[m[1], m[3], float(m[4]), int(m[2])] = p
    for kind, title in (("lookaheadkv", "Lookahead rows and modules with LoRA"), ("judgeq", "Soft tokens")):
        if not any(k == kind for k, *_ in grid):
            continue
        print(f"{title}:\n\n| LoRA | learning rate | rows | loss | " + " | ".join(f"B = {b} | hits, {b}" for b in run.budgets) + " |")
        print("|:---|---:|---:|---:|" + "---:|---:|" * len(run.budgets))
        for _, m, rate, n in sorted((g for g in grid if g[0] == kind), key=lambda g: (("none", "qv", "all").index(g[1]), *g[2:])):
            p = grid[kind, m, rate, n]
            loss = losses.get(p.split("/")[1])
            print(f"| {m} | {rate:g} | {n} | {'–' if loss is None else f'{loss:.4g}'} | " + " | ".join(
                f"{percent(run.mean(p, b))} | {100 * run.mean(p, b, 'hit_rate')[0]:.0f}" for b in run.budgets) + " |")
        print()
    for kind, modules in (("lookaheadkv", "all"), ("judgeq", "none")):
        # As the others, trained at 512 tokens on the model's own responses.
        same = next((p for (k, m, _, n), p in grid.items() if (k, m, n) == (kind, modules, 32)), "")
        end = f"{kind}/{kind}-end"
        for change, text, other in (("noise", "rows from noise, against the end token", end), ("source", "responses of the source, against the model's own", same),
                                    ("256", "trained at 256 tokens, against 512", same)):
            compare(run, f"{kind}: {text}", f"{kind}/{kind}-{change}", other, run.budgets)
            compare(run, f"{kind}: {text}: hits", f"{kind}/{kind}-{change}", other, run.budgets, what="hit_rate")


def latency(run):
    """Claim 4: what policies add before the first token."""
    lengths = sorted(run.cell("full", 0)["latency"], key=lambda name: int(name.split()[0]))
    print("Time to first token in ms, and what that adds to a plain prefill:\n\n| policy | " + " | ".join(lengths) + " |\n|:---|" + "---:|" * len(lengths))

    def times(p):
        return (run.cell(p, 64) or {}).get("latency", {})

    for p in sorted(run.policies, key=lambda p: times(p)[lengths[-1]]["ttft_ms"]):
        print(f"| {p} | " + " | ".join(f"{t['ttft_ms']:.1f} ({100 * (t['ttft_ms'] / t['plain_ttft_ms'] - 1):+.0f}%)" for t in map(times(p).get, lengths)) + " |")
    print()
    for length in lengths:
        added = {p: t["ttft_ms"] - t["plain_ttft_ms"] for p in ("lookaheadkv", "laq", "speckv") if (t := times(p).get(length))}
        if len(added) == 3:
            claim(f"time that is added before the first token, {length}: LookaheadKV less than half of LAQ, LAQ less than SpecKV",
                  added["lookaheadkv"] < 0.5 * added["laq"] and added["laq"] < added["speckv"], ", ".join(f"{p} {v:.1f} ms" for p, v in added.items()))


def compositions(run):
    """Claim 6: compositions against every single method of the run; claim 5: sparse reads at equal traffic."""
    composed = [p for p in run.policies if "lookaheadkv" in p and (":" in p or "scorer=" in p)]
    single = [p for p in run.policies if ":" not in p and "scorer=" not in p and p not in BOUNDS]
    print("Compositions against the best single method that has at most as many bytes (up to 2% more):\n\n"
          "| bytes | composition | B | KiB | best single | difference |\n|:---|:---|---:|---:|:---|---:|")
    for bytes_of, text in (("kept_bytes", "held"), ("traffic_bytes_per_step", "read a token")):
        for c, b, cost, best, d in frontier(run, single, composed, bytes_of):
            print(f"| {text} | {c} | {b} | {cost / 1024:.0f} | {best[0]} at {best[1]} | {percent(d)} |")
    print()
    equal_traffic(run, [int(b) for b in run.budgets])


def main():
    if len(sys.argv) != 3 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    path, name = os.path.join(sys.argv[1], sys.argv[2]), sys.argv[2]
    if not os.path.exists(os.path.join(path, "predictions.jsonl")):
        sys.exit(f"reference_claims: {path}/predictions.jsonl is missing: run lab/reference/reference_results.sh --stage {name}")
    run = Run(predictions(path))
    if name != "latency":
        means(run)
    if name == "test_512":
        policies(run, "512")
    elif name == "test_2048":
        policies(run, "2,048")
    elif name == "latency":
        latency(run)
    elif name == "compositions":
        compositions(run)
    elif name == "merging":
        merging(run)
    elif name.startswith("ablations"):
        ablations(run, sys.argv[1])
    if claims:
        print("| claim | | numbers |\n|:---|:---|:---|")
        for text, verdict, numbers in claims:
            print(f"| {text} | {verdict} | {numbers} |")
        print()
        if any(v != "reported" for _, v, _ in claims):
            print(f"{sum(v == 'holds' for _, v, _ in claims)} of {sum(v != 'reported' for _, v, _ in claims)} claims hold.\n")
    if name != "latency":
        tables(run)


main()
