#!/usr/bin/env python3
"""The claims of results/decided.md, from a run of evict eval: paired differences of nll over meetings, with Student's t and Holm over twelve.

  decided.py RUN              a folder with predictions.jsonl
  decided.py MEASURED.csv     what was kept of one
  decided.py RUN --keep FILE  keeps the two measures of every query and policy
  decided.py --equal MARGIN RUN-OR-CSV...
                              whether each policy scores as the full cache does, within so many points: two one-sided tests, paired over documents"""
import csv, json, math, os, sys

CLAIMS = [(1, "lookaheadkv", "snapkv"), (2, "lookaheadkv", "laq"), (3, "lookaheadkv", "judgeq"), (4, "judgeq", "snapkv"), (5, "dapq", "snapkv"),
          (6, "rocketkv", "quest"), (7, "rocketkv", "sparq"), (8, "rocketkv", "snapkv"), (9, "d2o", "h2o")]
TOLD = 12  # claims that Holm's method counts


def beta(x, a, b):
    """The regularised incomplete beta function by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(1 - x)) / a
    f, c, d = 1.0, 1.0, 0.0
    for i in range(400):
        m = i // 2
        n = 1.0 if i == 0 else m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)) if i % 2 == 0 else -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 + n * d
        d = 1 / (d if abs(d) > 1e-300 else 1e-300)
        c = 1 + n / (c if abs(c) > 1e-300 else 1e-300)
        f *= c * d
        if abs(1 - c * d) < 1e-14:
            break
    return front * (f - 1)


def p_of(t, freedom):
    return beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def read(path):
    """Query, policy, nats per token, ROUGE-L (None: not measured)."""
    if path.endswith(".csv"):
        for r in csv.DictReader(open(path, newline="")):
            yield r["sample"], r["policy"], float(r["nll"]), float(r["rougeL"]) if r["rougeL"] else None
        return
    for line in open(os.path.join(path, "predictions.jsonl")):
        r = json.loads(line)
        if "nll" in r.get("measures", {}):
            yield r["sample"], r["policy"], r["measures"]["nll"], r["measures"].get("rougeL")


def equal(margin, runs):
    print("| task | n | documents | policy | full | policy's | difference, points | 95% | p of two one-sided tests | discordant |\n|:--|--:|--:|:--|--:|--:|--:|--:|--:|--:|")
    for run in runs:
        score, task = {}, os.path.basename(run)
        if run.endswith(".csv"):
            for r in csv.DictReader(open(run, newline="")):
                for p in (p for p in r if p != "sample"):
                    score.setdefault(p, {})[r["sample"]] = float(r[p])
        else:
            for line in open(os.path.join(run, "predictions.jsonl")):
                r = json.loads(line)
                task = r["task"]
                score.setdefault(r["policy"], {})[r["sample"]] = r["measures"][r["metric"]]
        for policy in (p for p in score if p != "full"):
            both = [q for q in score[policy] if q in score["full"]]
            documents = {}
            for q in both:
                documents.setdefault(q.rsplit("-", 1)[0], []).append(100 * (score[policy][q] - score["full"][q]))
            d = [sum(x) / len(x) for x in documents.values()]
            n, mean = len(d), sum(d) / len(d)
            error = math.sqrt(sum((x - mean) ** 2 for x in d) / (n - 1) / n)
            one = lambda t: p_of(t, n - 1) / 2 if t > 0 else 1 - p_of(t, n - 1) / 2
            p = max(one((margin - mean) / error), one((margin + mean) / error)) if error else 0.0
            means = [100 * sum(score[x][q] for q in both) / len(both) for x in ("full", policy)]
            print(f"| {task} | {len(both)} | {n} | {policy} | {means[0]:.1f} | {means[1]:.1f} | {mean:+.1f} | ± {1.96 * error:.1f} | {p:.2g} | {sum(score[policy][q] != score['full'][q] for q in both)} |")


def main():
    if sys.argv[1] == "--equal":
        return equal(float(sys.argv[2]), sys.argv[3:])
    nll, score = {}, {}
    measured = list(read(sys.argv[1]))
    if sys.argv[2:3] == ["--keep"]:
        with open(sys.argv[3], "w", newline="") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow(["sample", "policy", "nll", "rougeL"])
            out.writerows((sample, policy, f"{a:.5f}", "" if b is None else f"{b:.4f}") for sample, policy, a, b in sorted(measured))
    for sample, policy, a, b in measured:
        nll.setdefault(policy, {})[sample] = a
        score.setdefault(policy, {})[sample] = b
    queries = set.intersection(*(set(x) for x in nll.values()))
    meetings = {}
    for q in queries:
        meetings.setdefault(q.rsplit("-", 1)[0], []).append(q)
    print(f"{len(queries)} queries of {len(meetings)} meetings\n\n| policy | nll | ROUGE-L |\n|:--|--:|--:|")
    for policy in sorted(nll, key=lambda p: sum(nll[p][q] for q in queries)):
        s = [score[policy][q] for q in queries if score[policy][q] is not None]
        print(f"| {policy} | {sum(nll[policy][q] for q in queries) / len(queries):.3f} | {100 * sum(s) / max(1, len(s)):.1f} |")
    rows = []
    for number, a, b in CLAIMS:
        if a not in nll or b not in nll:
            continue
        d = [sum(nll[a][q] - nll[b][q] for q in of) / len(of) for of in meetings.values()]
        n, mean = len(d), sum(d) / len(d)
        error = math.sqrt(sum((x - mean) ** 2 for x in d) / (n - 1) / n)
        rows.append((number, a, b, mean, error, mean / error, p_of(mean / error, n - 1)))
    holm, worst = {}, 0
    for i, r in enumerate(sorted(rows, key=lambda r: r[-1])):
        worst = holm[r[0]] = max(worst, min(1, r[-1] * (TOLD - i)))
    print("\n| | claim | difference, nats | 95% | t | p, Holm | verdict |\n|--:|:--|--:|--:|--:|--:|:--|")
    for number, a, b, mean, error, t, _ in rows:
        p = holm[number]
        verdict = "not told apart" if p > 0.05 else "holds" if mean < 0 else "the reverse holds"
        print(f"| {number} | {a} below {b} | {mean:+.3f} | ± {1.96 * error:.3f} | {t:+.1f} | {p:.1g} | {verdict} |")


if __name__ == "__main__":
    main()
