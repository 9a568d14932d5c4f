#!/usr/bin/env python3
"""Write the page of what lab/smollm2/results.sh has measured.

    python3 lab/smollm2/results.py RUNS PAGE

RUNS is the folder of its stages, PAGE the Markdown file. Rows that are not in RUNS are those of measured/, which
measured.py keeps. Stages that are in neither are named at the end of the page. Needs nothing but Python.
"""

import hashlib
import json
import math
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import measured
from results_runs import BOUNDS, PREFILL, Run, average, holm, percent, permutation

HEAD = """# The papers' claims on a real model

SmolLM2-135M-Instruct (a GGUF file of 4 bits), with adapters that were trained on its own answers. One command
repeats all of it; each stage goes on where it was stopped:

<!-- not run: takes many hours on 2 cores -->
```sh
lab/smollm2/results.sh
```

What was measured lies in `lab/smollm2/measured`, prompt by prompt; with `--rest` the command measures what that lacks.

- Numbers are means over tasks in %, ± one standard error over prompts. Differences are of the same prompts.
- Budgets are shares of the prompt that stay. "hits" is the share of the entries kept by the oracle that a policy keeps.
- `full`, `oracle` and `exact-topk` are bounds: they cannot be deployed. `speckv` wants a smaller model with the same
  vocabulary for its draft, of which there is none: its draft here is the model's own, up to 32 tokens under its full cache. Where
  answers are that short it has read the answer before it evicts, and so is compared with apart.
- A policy without brackets has the settings of its paper. Those in brackets were chosen on validation prompts (seed
  7), where the list below has them; `kernel=1` pools nothing, and `streamingllm(decode=0)` evicts the prompt
  alone. Adapters have the pooling that was chosen on validation prompts, and learning rates that were chosen there by an
  earlier pass than the one below, which puts higher rates ahead. Nothing was chosen on the prompts that are reported (seed 1), but for the rival of the claim about LookaheadKV: the best of them there.
- p is two-sided, of a paired permutation test, corrected by Holm's method over all claims of this page.

"""

ROOT = os.path.join(measured.HERE, "..", "..")
SHIPPED = os.path.join(ROOT, "adapters", "smollm2-135m-instruct")
MAP = os.path.join(ROOT, "docs", "results", "smollm2-needles.svg")
CHOICES = {"pooling": "kernels", "settings": "chosen"}  # what was chosen, a line each
GLANCE = ("needle", "ruler", "longbench", "documents", "turns")  # benchmarks that the first table has
NEWS = ("bf16", "q8_0", "kivi4", "q4_0")  # types of caches that LongBench is measured over
STAGES = ("rates", "adapters", "pooling", "settings", "needle", "length", "ruler", "longbench", "documents", "longbench-budgets", "documents-budgets", "turns", *(f"caches-{t}" for t in measured.CACHES), *(f"news-{t}" for t in NEWS), "latency", "ablations")
TITLES = {"needle": "Needles", "length": "Longer prompts than in training", "ruler": "RULER", "longbench": "LongBench", "documents": "Documents",
          "turns": "Five questions about one context", "latency": "Time to first token", "ablations": "Rows and modules"}


class Page:
    """The text of the page and the claims that it tests."""

    def __init__(self, folder, kept):
        self.folder, self.kept, self.out, self.claims, self.stages = folder, kept, [], [], {}

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def read(self, *names):
        """A file of the runs, or else what is kept of it."""
        return measured.text_of(self.path(*names)) or measured.text_of(self.kept, *names)

    def stage(self, name):
        """What was measured; None where nothing of a stage is."""
        if name not in self.stages:
            self.stages[name] = measured.known(self.kept, self.folder, name)
        return self.stages[name]

    def left(self, name):
        """None where a stage is finished, or else how far it is."""
        if not (self.read(CHOICES[name]) if name in CHOICES else self.stage(name)):
            return ""
        parts = [p for p in measured.parts(self.kept, self.folder, name) if "." in p]
        count = int(parts[0].split("of")[-1]) if parts else 0
        return f" ({len(parts)} of {count} parts are)" if len(parts) < count else None

    def say(self, *lines):
        self.out += lines

    def table(self, head, rows):
        self.say("| " + " | ".join(head) + " |", "|:---|" + "---:|" * (len(head) - 1))
        self.say(*("| " + " | ".join(map(str, r)) + " |" for r in rows), "")

    def origin(self, name):
        """Where, when and how a stage was measured."""
        origins = self.stage(name)["origins"]
        o, seconds = origins[-1], sum(o["seconds"] for o in origins)
        commits = list(dict.fromkeys(o["commit"] for o in origins if o["commit"]))
        self.say(f"Measured on {', '.join(sorted({o['day'] for o in origins}))}" + (f" on {o['cores']} cores" if o["cores"] else "") + (f" ({o['system']})" if o["system"] else "")
                 + (f", commit {', '.join(commits)}" if commits else "") + (f", in {seconds // 60} min" if seconds else "") + ":", "",
                 "<!-- not run: takes long -->", "```sh", f"lab/smollm2/results.sh --stage {name}", "```", "")

    def claim(self, text, parts, numbers, above=0.0):
        """Tests that the mean of paired differences is above a number."""
        mean = average(parts)
        if not math.isnan(mean[0]):
            self.claims.append((text, mean, permutation(parts, above), numbers, above))

    def compare(self, run, title, one, other, budgets=None, what="score", tasks=None, above=0.0):
        for b in budgets or run.budgets:
            if run.has(one, b) and run.has(other, b):
                self.claim(f"{title}, {b}", run.differences((one, b), (other, b), what, tasks),
                           f"{one} {percent(run.mean(one, b, what, tasks))}, {other} {percent(run.mean(other, b, what, tasks))}", above)


def key(policy):
    return policy in BOUNDS


def cell(run, p, b, what="score", tasks=None, write=percent):
    value = run.mean(p, b, what, tasks) if run.has(p, b) else (math.nan, 0)
    return "–" if math.isnan(value[0]) else write(value)


def whole(value):
    return f"{100 * value[0]:.0f}"


def ordered(run, tasks=None):
    """Policies, the best mean over budgets first, bounds after all."""
    def over(p):
        values = [v for b in run.budgets if run.has(p, b) and not math.isnan(v := run.mean(p, b, tasks=tasks)[0])]
        return sum(values) / len(values) if values else -1
    return sorted(run.policies, key=lambda p: (key(p), -over(p)))


def scores(page, run, tasks=None):
    page.table(["policy", *run.budgets], [[f"*{p}*" if key(p) else p, *(cell(run, p, b, tasks=tasks) for b in run.budgets)] for p in ordered(run, tasks)])


def held(page, run, tasks=None):
    """How well policies rank, and what they hold and read."""
    kib = lambda v: f"{v[0] / 1024:.0f}"
    for b in run.budgets:
        page.say(f"At {b}:", "")
        page.table(["policy", "hits", "recall", "τ", "KiB held", "KiB read a token"], [
            [p, cell(run, p, b, "hit_rate", tasks, whole), cell(run, p, b, "recall", tasks, whole), cell(run, p, b, "kendall_tau", tasks, lambda v: f"{v[0]:.2f}"),
             cell(run, p, b, "kept_bytes", tasks, kib), cell(run, p, b, "traffic_bytes_per_step", tasks, kib)] for p in ordered(run, tasks)])


def base(policy):
    return re.split(r"[(/]", policy)[0]


def claims_of(page, run, where, tasks=None):
    """The papers' claims on one benchmark."""
    for b in run.budgets:
        if b in ("5%", "10%", "20%") and run.has("lookaheadkv", b):
            others = [p for p in run.policies if base(p) in PREFILL and base(p) not in ("lookaheadkv", "speckv") and run.has(p, b) and run.cell(p, b)
                      and not math.isnan(run.mean(p, b, tasks=tasks)[0])]
            if others:
                best = max(others, key=lambda p: run.mean(p, b, tasks=tasks)[0])
                page.compare(run, f"{where}: LookaheadKV above every other prefill policy (arXiv:2603.10899, table 2, figure 2)", "lookaheadkv", best, [b], tasks=tasks)
    page.compare(run, f"{where}: LookaheadKV above SpecKV with the full cache's own draft", "lookaheadkv", "speckv", tasks=tasks)
    for one, other in (("judgeq", "snapkv"), ("judgeq(kernel=1)", "snapkv"), ("judgeq(kernel=1)", "snapkv(kernel=1)")):
        page.compare(run, f"{where}: hit rate of `{one}` 8 points above `{other}` (arXiv:2509.10798, table 4)", one, other, what="hit_rate", tasks=tasks, above=0.08)
    for title, one, other in (("D2O above H2O", "d2o", "h2o"), ("D2O above StreamingLLM", "d2o", "streamingllm"), ("DapQ above SnapKV", "dapq", "snapkv"), ("LAQ above SnapKV", "laq", "snapkv")):
        page.compare(run, f"{where}: {title}", one, other, tasks=tasks)

    def read(p, b):
        return run.mean(p, b, "traffic_bytes_per_step", tasks)[0]

    for other in ("quest", "sparq"):
        for b in run.budgets:
            own = [x for x in run.budgets if run.has("rocketkv", x) and run.has(other, b) and read("rocketkv", x) <= 1.02 * read(other, b)]
            if own:
                x = own[-1]
                page.claim(f"{where}: RocketKV at {x} above {other} at {b}, equal traffic (2% more at most)", run.differences(("rocketkv", x), (other, b), tasks=tasks),
                           f"rocketkv {percent(run.mean('rocketkv', x, tasks=tasks))}, {other} {percent(run.mean(other, b, tasks=tasks))}, {read(other, b) / 1024:.0f} KiB a token")


def trained(page, name, title):
    t = page.stage(name)["training"]
    last, rates = t["validation"], t["rates"]
    page.say(f"{title}: {t['steps']} steps, {t['samples']:,} samples, {t['seconds'] / 3600:.1f} hours; "
             f"on {last['samples']} validation prompts at step {last['step']}:", "")
    page.table(["adapter", "learning rate", "loss", *(f"hits, {b}" for b in last["budgets"])], [
        [a["name"], f"{rates[a['name']]:.2g}" if a["name"] in rates else "", f"{a['loss']:.4g}" if a["name"] in rates else "", *(f"{100 * h:.1f}" for h in a["hit_rate"])]
        for a in [*last["adapters"], last["snapkv"]]])


def adapters(page):
    if not page.stage("adapters"):
        return
    page.say("## The adapters", "")
    page.origin("adapters")
    if page.stage("rates"):
        trained(page, "rates", "Learning rates: loss and hits after one short pass")
    trained(page, "adapters", "The adapters")
    rows = []
    for kind in ("lookaheadkv", "judgeq"):
        folder = next((f for f in (page.path("shipped", kind), os.path.join(SHIPPED, kind)) if os.path.isdir(f)))
        about = json.loads(measured.text_of(folder, "glimpse.json"))
        for file in sorted(f for f in os.listdir(folder) if f.endswith(".safetensors")):
            with open(os.path.join(folder, file), "rb") as f:
                data = f.read()
            size = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + size])
            rows.append([kind, about["rows"], file, f"{sum(math.prod(t['shape']) for n, t in header.items() if n != '__metadata__'):,}", f"{len(data):,}", f"`{hashlib.sha256(data).hexdigest()}`"])
    page.table(["adapter", "rows", "file", "parameters", "bytes", "SHA-256"], rows)
    for name, what in (("kernels", "Pooling"), ("chosen", "Settings")):
        chosen = page.read(name)
        if chosen:
            page.say(f"{what}, of all that were tried those with the highest mean over tasks and budgets on validation prompts, of equals the first:", "",
                     *(f"- `{line}`" for line in chosen.splitlines()), "")


def benchmark(page, name, group=None):
    if not page.stage(name):
        return None
    page.say(f"## {TITLES[name]}", "")
    page.origin(name)
    return Run(page.stage(name)["rows"], group)


def mastered(run):
    """The tasks of RULER of which the full cache answers at least half, and the rest."""
    full = {t: run.mean("full", "0", tasks=[t])[0] for t in run.tasks}
    return [t for t in run.tasks if full[t] >= 0.5], [t for t in run.tasks if not full[t] >= 0.5]


def glance(page, budget="10%"):
    """The first table: a score of every benchmark at one budget, the best policies first."""
    columns = {}
    for name in GLANCE:
        if page.stage(name):
            run = Run(page.stage(name)["rows"], "length" if name in ("needle", "ruler") else None)
            columns[name] = run, mastered(run)[0] if name == "ruler" else None
    if not columns:
        return
    score = lambda p, name: columns[name][0].mean(p, budget, tasks=columns[name][1]) if columns[name][0].has(p, budget) else (math.nan, 0)
    rows = []
    for p in {p for run, _ in columns.values() for p in run.policies}:
        if "(" not in p and all(not math.isnan(score(p, name)[0]) for name in columns):
            rows.append((p in BOUNDS, -sum(score(p, name)[0] for name in columns), p))
    page.say("## At a glance", "", f"Policies that every benchmark has, with {budget} of the cache and the settings of their papers. Documents are agreement with the full cache's answers.", "")
    page.table(["policy", *(TITLES[name] for name in columns)], [[f"*{p}*" if bound else p, *(percent(score(p, name)) for name in columns)] for bound, _, p in sorted(rows)])


def needle(page):
    run = benchmark(page, "needle", "length")
    if not run:
        return
    if os.path.exists(page.path("needle-map.svg")) or os.path.exists(MAP):
        page.say("By depth and length, at 10%: [heat map](smollm2-needles.svg).", "")
    for t in sorted(run.tasks, key=lambda t: int(t.split()[-1])):
        page.say(f"### Prompts of {int(t.split()[-1]):,} tokens", "")
        scores(page, run, [t])
        held(page, run, [t])
    claims_of(page, run, "needles")


def ruler(page):
    run = benchmark(page, "ruler", "length")
    if not run:
        return
    good, bad = mastered(run)
    if bad:
        page.say("Not counted, as the full cache answers less than half: " + ", ".join(f"{t} ({whole(run.mean('full', '0', tasks=[t]))}%)" for t in bad) + ".", "")
    if not good:
        page.say("The full cache masters no task.", "")
        return
    scores(page, run, good)
    for b in run.budgets:
        page.say(f"By task, at {b}:", "")
        page.table(["policy", *good], [[p, *(cell(run, p, b, tasks=[t], write=whole) for t in good)] for p in ordered(run, good)])
    held(page, run, good)
    claims_of(page, run, "RULER", good)


def longbench(page):
    run = benchmark(page, "longbench")
    if run:
        page.say("Scores are those of each data set, ROUGE-L for multi_news: " + ", ".join(f"{t} ({len(run.of['full', '0'][t])} prompts)" for t in run.tasks) + ".", "")
        scores(page, run)
        claims_of(page, run, "LongBench")
        other_budgets(page, "longbench", scores)


def other_budgets(page, name, tables):
    """The budgets that a benchmark has been measured at on some of its prompts, beside what all of them were measured at."""
    if not page.stage(f"{name}-budgets"):
        return
    rows = page.stage(f"{name}-budgets")["rows"]
    policies, samples = {row[0] for row in rows}, {row[4] for row in rows}
    run = Run([row for row in page.stage(name)["rows"] if row[0] in policies and row[4] in samples] + rows)
    page.say("### At other budgets", "")
    page.origin(f"{name}-budgets")
    page.say(f"{len(samples)} of the prompts, and the same ones at {', '.join(Run(page.stage(name)['rows']).budgets)}.", "")
    tables(page, run)
    run.budgets = Run(rows).budgets
    claims_of(page, run, f"{TITLES[name]} at other budgets")


def agreement(page, run):
    """The tables of agreement with the full cache's answers."""
    scores(page, run)
    policies = [p for p in ordered(run) if p != "full"]
    page.table(["policy", *(f"same, {b}" for b in run.budgets), *(f"Δ nll, {b}" for b in run.budgets)], [
        [p, *(cell(run, p, b, "agreement_exact", write=whole) for b in run.budgets),
         *("–" if not run.has(p, b) or math.isnan((d := run.difference((p, b), ("full", "0"), "nll"))[0]) else f"{d[0]:+.3f} ± {d[1]:.3f}" for b in run.budgets)] for p in policies])


def documents(page):
    run = benchmark(page, "documents")
    if run:
        page.say("Agreement with the full cache's own answers: F1 of words, then answers that are the same, and how much less likely (nats a token) they are than under the full cache.", "")
        agreement(page, run)
        held(page, run)
        claims_of(page, run, "documents")
        other_budgets(page, "documents", agreement)


def turns(page):
    run = benchmark(page, "turns")
    if not run:
        return
    measures = {m for task in next(iter(run.of.values())).values() for s in task.values() for m in s}
    columns = ["score", *sorted(m for m in measures if re.search(r"turn_?\d", m))]
    for b in run.budgets:
        page.say(f"At {b}:", "")
        page.table(["policy", "mean", *columns[1:], *run.tasks], [[p, *(cell(run, p, b, c) for c in columns), *(cell(run, p, b, tasks=[t], write=whole) for t in run.tasks)] for p in ordered(run)])
    page.compare(run, "turns: RocketKV-MT above RocketKV (arXiv:2502.14051, §3.5)", "rocketkv-mt", "rocketkv")
    claims_of(page, run, "turns")


def over_caches(page, stage, columns):
    """Types of caches, each a stage of its own, as one run whose policies have the type in front; columns are of tasks."""
    types = [t for t in measured.CACHES if page.stage(f"{stage}-{t}")]
    if "bf16" not in types:  # what bytes are a share of
        return None
    page.origin(f"{stage}-{types[-1]}")
    run = Run([[f"{t} {p}", *rest] for t in types for p, *rest in page.stage(f"{stage}-{t}")["rows"]])
    run.tasks = sorted(run.of[f"{types[0]} full", "0"])
    whole = run.of["bf16 full", "0"]
    rows = []
    for (p, b), of in run.of.items():
        shares = [s["kept_bytes"] / whole[t][n]["full_bytes"] for t, samples in of.items() for n, s in samples.items()]
        rows.append((100 * sum(shares) / len(shares), p, b))
    page.table(["bytes", "cache", "policy", "budget", *(name for name, _ in columns)], [
        [f"{share:.1f}%", *p.split(" ", 1), "–" if b == "0" else b, *(percent(run.mean(p, b, tasks=[t for t in run.tasks if of(t)])) for _, of in columns)] for share, p, b in sorted(rows)])
    return run


def caches(page):
    if not any(page.stage(f"caches-{t}") for t in measured.CACHES):
        return
    page.say("## Eviction, quantising, or both", "")
    page.say("Keys and values in fewer bits, fewer of them, or both. Bytes are those held after the prompt, in % of the full cache in bf16. Sorted by bytes.", "")
    run = over_caches(page, "caches", [("needles", lambda t: t == "niah"), ("RULER", lambda t: t != "niah")])
    news = over_caches(page, "news", [("LongBench", lambda t: True)])
    if news:
        page.say("LongBench is " + ", ".join(f"{len(news.of['bf16 full', '0'][t])} prompts of {t.split('/')[-1]}" for t in news.tasks) + ".", "")
    both, alone = ("q4_0 lookaheadkv", "20%"), ("bf16 lookaheadkv", "5%")
    if run and run.has(*both) and run.has(*alone):
        page.claim("4 bits and eviction above eviction alone at 5% of the bytes, needles and RULER", run.differences(both, alone),
                   f"q4_0 at 20% {percent(run.mean(*both))}, bf16 at 5% {percent(run.mean(*alone))}")


def latency(page):
    run = benchmark(page, "latency")
    if not run:
        return
    b = run.budgets[0]
    lengths = sorted(next(iter(run.of.values()))["latency"], key=lambda s: int(s.split()[0]))
    rows = []
    for p in run.policies:
        t = run.cell(p, b)["latency"]
        rows.append([p, *(x for n in lengths if (m := t.get(n)) for x in (f"{m['ttft_ms']:.0f} ({100 * (m['ttft_ms'] / m['plain_ttft_ms'] - 1):+.0f}%)", f"{m['decode_tokens_per_s']:.1f}" if "decode_tokens_per_s" in m else "–", f"{m['kept_bytes'] / 1024:.0f}"))])
    page.say(f"At {b}: time to first token in ms and what that adds to a plain prefill.", "")
    page.table(["policy", *(x for n in lengths for x in (n, "tokens/s", "KiB held"))], rows)


def length(page):
    run = benchmark(page, "length", "length")
    if not run:
        return
    page.say("`lookaheadkv` and `judgeq` were trained on prompts of at most 2,048 tokens, `lookaheadkv/short` on those of at most 512.", "")
    for t in sorted(run.tasks, key=lambda t: int(t.split()[-1])):
        page.say(f"### Prompts of {int(t.split()[-1]):,} tokens", "")
        scores(page, run, [t])
    for one, other in (("lookaheadkv", "snapkv"), ("lookaheadkv/short", "snapkv"), ("judgeq", "snapkv"), ("lookaheadkv", "lookaheadkv/short")):
        page.compare(run, f"prompts longer than in training: {one} above {other} (arXiv:2603.10899, figure 6)", one, other)


def ablations(page):
    run = benchmark(page, "ablations")
    if not run:
        return
    scores(page, run)
    grid = {(int(m[1]), m[2]): p for p in run.policies if (m := re.search(r"-n(\d+)-(\w+)", p))}
    most = max((n for n, _ in grid), default=0)
    for one, other in (((most, "all"), (most, "none")), ((most, "all"), (most, "qv")), ((most, "all"), (min((n for n, _ in grid), default=0), "all"))):
        if one != other and one in grid and other in grid:
            page.compare(run, f"{one[0]} rows, LoRA {one[1]}, above {other[0]} rows, LoRA {other[1]} (arXiv:2603.10899, table 5)", grid[one], grid[other])


def verdict(mean, p, above):
    if not p < 0.05:
        return "not told apart"
    return "holds" if mean > above else "does not hold"


def write(folder, kept=measured.FOLDER):
    """The page of a folder and of what is kept, in Markdown."""
    page = Page(folder, kept)
    for section in (glance, adapters, needle, ruler, longbench, documents, turns, caches, latency, length, ablations):
        section(page)
    if page.claims:
        tested = [c for c in page.claims if not math.isnan(c[2])]
        p = dict(zip(map(id, tested), holm([c[2] for c in tested])))
        page.say("## Claims", "", f"{len(page.claims)} claims. One holds, or does not, where its corrected p is below 0.05.", "")
        page.table(["claim", "verdict", "numbers", "difference", "p", "p, Holm"], [
            [text, verdict(mean[0], p.get(id(c), math.nan), above), numbers, percent(mean), *(("–", "–") if math.isnan(raw) else (f"{raw:.4f}", f"{p[id(c)]:.4f}"))]
            for c in page.claims for text, mean, raw, numbers, above in [c]])
    missing = [f"`{s}`{left}" for s in STAGES if (left := page.left(s)) is not None]
    if missing:
        page.say("## Not measured yet", "", "Stages that are not finished: " + ", ".join(missing) + ".", "")
    return HEAD + "\n".join(page.out)


def main():
    if len(sys.argv) != 3 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    folder, target = sys.argv[1:]
    text = write(folder)
    with open(target + ".new", "w") as f:
        f.write(text)
    os.replace(target + ".new", target)
    if os.path.exists(os.path.join(folder, "needle-map.svg")):
        shutil.copyfile(os.path.join(folder, "needle-map.svg"), os.path.join(os.path.dirname(target), os.path.basename(MAP)))


if __name__ == "__main__":
    main()
