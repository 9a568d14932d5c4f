#!/usr/bin/env python3
"""Train the reference model from scratch, in stages that can be killed and resumed.

    python3 lab/reference/model/train.py [--size draft] [--minutes 60]

A stage ends after so many minutes, or at Ctrl-C or a TERM signal, with its state in
out/reference_model/SIZE/state.pt; the same command goes on from there, to the same bits
as if it had never stopped, on the same machine with the same number of threads. A stage
that is killed outright goes on from the last state that it saved.

Exit status: 0 when the model is trained and answers every task, 3 when it is trained and
does not (the tasks are named; --tokens with a larger number trains it further), 75 when
another stage is needed. log.jsonl beside the state has the loss and the accuracy of every
task; the trained model is exported to SIZE/model.

Needs PyTorch, numpy and the Go toolchain. With a C++ compiler and a processor with AVX512_BF16
the layers and Muon run in C++ (layers/), several times as fast, more so with AMX.
"""

import argparse
import json
import math
import os
import random
import signal
import sys
import time

import torch
import torch.nn.functional as F

import export
import fused
import network
from lessons import ROOT, Lessons
from muon import Muon

# A task has a level of its own, the longest lessons that ask it: it goes up when so many answers
# in a row, on average, are exact. When all tasks went up together, those that had not been
# learned on short lessons were not learned on long ones.
LEVELS = (64, 128, 256, 512, 1024, 2048)
MASTERED = 0.8
LEAST_ANSWERS = 100
REVIEW = 0.25  # share of steps with shorter lessons than the task's level

# Share of exact answers that every task must reach at a prompt length. A training that
# ends at a shorter one has SHORT there.
GOALS = {512: 0.95, 1024: 0.95, 2048: 0.90}
SHORT = 0.95
VALIDATION_LENGTHS = (64, 128, 256, 512, 1024, 2048)

WARMUP_STEPS = 100
# Share of all tokens, at the end, over which the learning rates fall to FLOOR. At the full rates
# answers stand still at some 80%. The built-in model was trained with 36M tokens: 23M, whose rates
# fell to FLOOR, and 13M more from 0.7 of the rates on. On 2 cores of a Xeon without AMX that was
# 4,000 to 8,000 tokens a second, three and a half hours. The draft was trained with 20M tokens, at
# 20,000 a second: it answers all tasks but key4 and some of summary.
DECAY = 0.7
FLOOR = 0.02  # of the learning rate, at the end

DONE, NOT_MASTERED, MORE = 0, 3, 75


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", choices=network.SIZES, default="reference")
    p.add_argument("--out", default=os.path.join(ROOT, "out", "reference_model"))
    p.add_argument("--start", metavar="FOLDER", help="begin with the weights of a model that was exported, not with random ones")
    p.add_argument("--minutes", type=float, default=60, help="length of this stage, at most")
    p.add_argument("--tokens", type=float, default=36e6, help="tokens of the whole training")
    p.add_argument("--longest", type=int, choices=LEVELS, default=LEVELS[-1], help="longest lessons")
    p.add_argument("--batch", type=int, default=8192, help="tokens per step; twice as many above 512")
    p.add_argument("--rate", type=float, default=2e-3, help="learning rate of AdamW")
    p.add_argument("--muon-rate", type=float, default=0.02)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--no-compile", action="store_true", help="run without compiled code: starts at once, slow")
    p.add_argument("--validate-every", type=float, default=5e6, help="tokens")
    p.add_argument("--examples", type=int, default=256, help="of every task and length in the last validation")
    p.add_argument("--save-every", type=float, default=5, help="minutes")
    return p.parse_args()


class Training:
    """All that a run needs to go on is in self.state, which is plain data."""

    def __init__(self, o):
        self.o = o
        torch.set_num_threads(o.threads)
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what the next line wants on GPUs
        torch.use_deterministic_algorithms(True)
        self.lessons = Lessons(o.threads)
        self.config = network.config(o.size, len(self.lessons.words))
        self.device = torch.device(o.device)
        # PyTorch's attention of small heads is faster in float32 on processors; that of layers/
        # is in bfloat16.
        self.attention = torch.bfloat16 if o.device == "cuda" else torch.float32
        self.folder = os.path.join(o.out, o.size)
        self.log_path = os.path.join(self.folder, "log.jsonl")
        self.state_path = os.path.join(self.folder, "state.pt")
        os.makedirs(self.folder, exist_ok=True)
        # A state of other settings is refused. With another machine training goes on, but not
        # to the same bits.
        self.settings = {k: getattr(o, k) for k in ("size", "longest", "batch", "rate", "muon_rate", "seed")}
        self.settings["taught"] = self.lessons.taught
        self.machine = {k: getattr(o, k) for k in ("device", "threads", "no_compile")}
        self.machine["torch"] = str(torch.__version__)

        self.hidden = network.hidden
        if not o.no_compile:
            compiled = os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(o.out, "compiled"))
            why = fused.build(compiled) if o.device == "cpu" else "for processors only"
            self.hidden = torch.compile(network.hidden, dynamic=True) if why else fused.hidden
            if why and o.device == "cpu":
                print(f"train: {why}: with torch.compile, far slower")
        quick = self.machine["fused"] = self.hidden is fused.hidden
        self.clip = fused.clip if quick else torch.nn.utils.clip_grad_norm_

        initial = network.parameters(self.config, o.seed)
        if o.start:
            initial = {n: torch.from_numpy(w) for n, w in export.read(o.start, self.config, self.lessons.words).items()}
        self.p = {n: torch.nn.Parameter(t.to(self.device)) for n, t in initial.items()}
        matrices = [t for n, t in self.p.items() if t.ndim == 2 and n not in ("emb", "head")]
        others = [t for n, t in self.p.items() if t.ndim < 2 or n in ("emb", "head")]
        self.optimizers = {
            "adamw": torch.optim.AdamW(others, o.rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
            "muon": Muon(matrices, o.muon_rate, fused=fused.muon if quick else None),
        }
        self.state = dict(step=0, tokens=0, drawn=0, levels={t: 0 for t in self.lessons.taught},
                          next_validation=o.validate_every, right={}, seen={}, loss=None, log_bytes=0, seconds=0.0)
        self.start = time.monotonic()
        self.stopped = False

    # The state.

    def load(self):
        if not os.path.exists(self.state_path):
            open(self.log_path, "wb").close()
            return
        saved = torch.load(self.state_path, map_location=self.device, weights_only=True)
        # Tasks that are not mastered may be dropped between two stages.
        dropped = set(saved["settings"]["taught"]) - set(self.lessons.taught)
        saved["settings"]["taught"] = [t for t in saved["settings"]["taught"] if t not in dropped]
        for name, value in self.settings.items():
            if saved["settings"][name] != value:
                sys.exit(f"train: {self.state_path}: {name} was {saved['settings'][name]!r}, not {value!r}: go on as it began, or begin in another folder with --out")
        with torch.no_grad():
            for n, t in self.p.items():
                t.copy_(saved["parameters"][n])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(saved[name])
        for group in self.optimizers["adamw"].param_groups:
            group.update(fused=True, foreach=None)  # whatever the state was made with
        self.state = saved["state"]
        for of in (self.state["levels"], self.state["right"], self.state["seen"]):
            for t in dropped & set(of):
                del of[t]
        # Lines that a killed stage wrote after its last state are written again.
        with open(self.log_path, "r+b") as f:
            f.truncate(self.state["log_bytes"])
        if dropped:
            self.log(step=self.state["step"], dropped=sorted(dropped))
        if saved["machine"] != self.machine:
            self.log(step=self.state["step"], machine=self.machine, before=saved["machine"])
            print(f"train: the last stage ran with {saved['machine']}, this one with {self.machine}: not the same bits")

    def save(self):
        self.state["log_bytes"] = os.path.getsize(self.log_path)
        state = dict(self.state, seconds=self.seconds())
        with open(self.state_path + ".tmp", "wb") as f:
            torch.save(dict(settings=self.settings, machine=self.machine, state=state, parameters={n: t.detach() for n, t in self.p.items()},
                            **{n: x.state_dict() for n, x in self.optimizers.items()}), f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(self.state_path + ".tmp", self.state_path)

    def seconds(self):
        """Of all stages."""
        return self.state["seconds"] + time.monotonic() - self.start

    def log(self, **line):
        with open(self.log_path, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")

    # One step.

    def levels(self):
        return LEVELS[: LEVELS.index(self.o.longest) + 1]

    def plan(self):
        """What the next batch is, by the step's number and what was learned so far: lessons as
        long as the level of a task that is drawn, with questions of all tasks that are as far."""
        s, r = self.state, random.Random(f"{self.o.seed}/{self.state['step']}")
        # What is known is kept in use; the rest is asked more.
        known = {t: 0.1 if t == "needle" else 0.25 for t in self.lessons.taught}
        wanted = {t: known[t] + 1.5 * (1 - self.accuracy(t)) for t in known}
        level = s["levels"][r.choices(list(wanted), list(wanted.values()))[0]]
        if level > 0 and r.random() < REVIEW:
            level = r.randrange(level)
        weights = {t: wanted[t] if at == level else known[t] for t, at in s["levels"].items() if at >= level}
        most = LEVELS[level]
        tokens = 16 * r.randint(LEVELS[max(level - 1, 0)] // 16, most // 16)
        budget = self.o.batch * (2 if most > 512 else 1)
        rows = max(1, budget // tokens)
        repeated = self.accuracy("repeat")
        repeat = 1.0 if r.random() < (0.5 if repeated < 0.5 else 0.04) else 0.0
        if repeat and repeated < 0.5:
            tokens = 64  # copying is learned on short sequences first
            rows = budget // tokens
        return dict(tokens=tokens, rows=rows, turns=3 + tokens // 64 if tokens <= 512 else 8 + tokens // 128,
                    weights=weights, repeat=repeat, seed=self.o.seed, first=s["drawn"])

    def accuracy(self, name):
        return self.state["right"].get(name, 0.0) if self.state["seen"].get(name, 0) >= 30 else 0.0

    def rate(self):
        """The share of the learning rates that this step has."""
        warm = min(1.0, (self.state["step"] + 1) / WARMUP_STEPS)
        left = (self.o.tokens - self.state["tokens"]) / (self.o.tokens * DECAY)
        return warm * max(FLOOR, min(1.0, left))

    def batch(self, b):
        """Ids, positions before the targets and the targets, as tensors."""
        at = torch.from_numpy(b.positions())
        ids = torch.from_numpy(b.ids)
        return ids.to(self.device), (at - 1).to(self.device), ids.view(-1)[at].to(self.device)

    def predict(self, ids, before):
        x = self.hidden(self.p, self.config, ids, self.attention)
        return network.logits(self.p, self.config, x.reshape(-1, self.config["d"]).index_select(0, before))

    def step(self):
        s, plan = self.state, self.plan()
        b = self.lessons.lessons(**plan)
        ids, before, want = self.batch(b)
        logits = self.predict(ids, before)
        loss = F.cross_entropy(logits, want)
        for x in self.optimizers.values():
            x.zero_grad(set_to_none=True)
        loss.backward()
        self.clip(self.p.values(), 1.0)
        rate = self.rate()
        for x, full in zip(self.optimizers.values(), (self.o.rate, self.o.muon_rate)):
            for g in x.param_groups:
                g["lr"] = full * rate
            x.step()

        loss = loss.item()
        if not math.isfinite(loss):
            sys.exit(f"train: step {s['step']}: loss {loss}")
        exact = b.exact((logits.argmax(-1) == want).cpu().numpy())
        for name, right in zip(b.targets[:, 3], exact):
            name = self.lessons.names[name]
            # Answers at shorter lengths than a task's level say nothing about the level.
            if plan["tokens"] * 2 <= LEVELS[s["levels"].get(name, 0)]:
                continue
            n = s["seen"][name] = s["seen"].get(name, 0) + 1
            if name == "repeat":  # all its words are never right: count them one by one
                right = math.exp(-loss)
            s["right"][name] = s["right"].get(name, 0.0) + (float(right) - s["right"].get(name, 0.0)) * max(0.01, 1 / n)
        s["loss"] = loss if s["loss"] is None else 0.98 * s["loss"] + 0.02 * loss
        s["step"] += 1
        s["drawn"] += plan["rows"]
        s["tokens"] += b.ids.size
        self.advance()

    def advance(self):
        s, last = self.state, len(self.levels()) - 1
        for t, level in s["levels"].items():
            if level < last and s["seen"].get(t, 0) >= LEAST_ANSWERS and self.accuracy(t) >= MASTERED:
                self.log(step=s["step"], tokens=s["tokens"], task=t, level=LEVELS[level + 1], right=round(s["right"][t], 4))
                s["levels"][t], s["seen"][t] = level + 1, 0

    # Validation.

    @torch.no_grad()
    def validate(self, examples, lengths):
        """Share of exact answers [length][task], of weights rounded as they are exported.
        An answer is the greedy one exactly if every token of it is the likeliest after the
        right ones before it."""
        saved = {n: t.clone() for n, t in self.p.items()}
        for t in self.p.values():
            t.copy_(t.bfloat16())
        out = {}
        for length in lengths:
            out[length] = {}
            rows = max(1, 32768 // length)
            for task in self.lessons.tasks:
                right = 0
                for first in range(0, examples, rows):
                    n = min(rows, examples - first)
                    b = self.lessons.examples(task, "validation", length, self.o.seed, first, n)
                    ids, before, want = self.batch(b)
                    exact = b.exact((self.predict(ids, before).argmax(-1) == want).cpu().numpy())
                    wrong = set(b.targets[~exact, 0])
                    right += n - len(wrong)
                out[length][task] = right / examples
        for n, t in self.p.items():
            t.copy_(saved[n])
        return out

    def missed(self, scores):
        """What is below its goal: (length, task, share, goal)."""
        goals = {n: GOALS[n] for n in scores if n in GOALS} or {max(scores): SHORT}
        return [(n, t, share, goal) for n, goal in goals.items() for t, share in scores[n].items() if share < goal]

    def check(self):
        """Validate while training."""
        s = self.state
        lengths = [n for n in VALIDATION_LENGTHS if n <= LEVELS[max(s["levels"].values())]]
        scores = self.validate(16, lengths)
        self.log(step=s["step"], tokens=s["tokens"], validation=scores)
        print(table(scores), flush=True)
        s["next_validation"] = s["tokens"] + self.o.validate_every

    def finish(self):
        lengths = [n for n in VALIDATION_LENGTHS if n <= self.o.longest]
        scores = self.validate(self.o.examples, lengths)
        self.log(step=self.state["step"], tokens=self.state["tokens"], final=scores, seconds=round(self.seconds()))
        print(table(scores))
        folder = os.path.join(self.folder, "model")
        export.write(folder, {n: t.detach().float().cpu().numpy() for n, t in self.p.items()}, self.config, self.lessons.words, scores, self.o.examples)
        print(f"train: wrote {folder} after {self.state['tokens'] / 1e6:.1f}M tokens and {self.seconds() / 60:.0f} minutes")
        missed = self.missed(scores)
        for length, task, share, goal in missed:
            print(f"train: {task} at {length} tokens: {share:.3f} exact, want {goal}")
        return NOT_MASTERED if missed else DONE

    # The loop.

    def run(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(self, "stopped", True))
        self.load()
        s, saved, shown = self.state, time.monotonic(), (time.monotonic(), self.state["tokens"])
        while s["tokens"] < self.o.tokens:
            self.step()
            now = time.monotonic()
            if s["step"] % 50 == 0:
                speed = (s["tokens"] - shown[1]) / (now - shown[0])
                shown = (now, s["tokens"])
                self.log(step=s["step"], tokens=s["tokens"], levels={t: LEVELS[x] for t, x in s["levels"].items()}, loss=round(s["loss"], 4),
                         rate=round(self.rate(), 4), right={n: round(x, 3) for n, x in sorted(s["right"].items())})
                at = {t: f"@{LEVELS[x]}" for t, x in s["levels"].items()}
                print(f"{s['step']:6} {s['tokens'] / 1e6:7.2f}M  loss {s['loss']:.3f}  {speed:6.0f} tokens/s  "
                      + " ".join(f"{n}{at.get(n, '')}:{100 * x:.0f}" for n, x in sorted(s["right"].items())), flush=True)
            if s["tokens"] >= s["next_validation"]:
                self.check()
                shown = (time.monotonic(), s["tokens"])
            if self.stopped or now - self.start > 60 * self.o.minutes:
                self.save()
                print(f"train: stopped after step {s['step']}, {s['tokens'] / 1e6:.1f}M of {self.o.tokens / 1e6:.0f}M tokens; the same command goes on")
                return MORE
            if now - saved > 60 * self.o.save_every:
                self.save()
                saved = now
        self.save()
        return self.finish()


def table(scores):
    lines = [" " * 14 + "".join(f"{n:>7}" for n in scores)]
    for task in next(iter(scores.values())):
        lines.append(f"{task:14}" + "".join(f"{of[task]:7.2f}" for of in scores.values()))
    return "\n".join(lines)


if __name__ == "__main__":
    training = Training(options())
    try:
        status = training.run()
    finally:
        training.lessons.close()
    sys.exit(status)
