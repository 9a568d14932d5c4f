"""Lessons and examples from the Go generator, over a pipe.

The program in batches/ defines what comes; its comment says in which form.
"""

import json
import os
import struct
import subprocess

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class Batch:
    """Token ids [rows, columns] and the targets in them: row, begin, end, and the index of
    the task's name."""

    def __init__(self, ids, targets):
        self.ids, self.targets = ids, targets

    def positions(self):
        """The flat positions of all target tokens, in the order of the targets."""
        columns = self.ids.shape[1]
        begin = self.targets[:, 0] * columns + self.targets[:, 1]
        length = self.targets[:, 2] - self.targets[:, 1]
        ends = np.cumsum(length)
        return np.repeat(begin - ends + length, length) + np.arange(ends[-1])

    def exact(self, right):
        """Of each target, whether all its tokens are right; right has one entry per
        position."""
        length = self.targets[:, 2] - self.targets[:, 1]
        return np.add.reduceat(~right, np.cumsum(length) - length) == 0


class Lessons:
    """The generator as a process. It ends with close()."""

    def __init__(self, threads=1):
        program = os.path.join(ROOT, "out", "reference_model", "batches")
        os.makedirs(os.path.dirname(program), exist_ok=True)
        try:
            subprocess.run(["go", "build", "-o", program, "./reference/model/batches"], cwd=os.path.join(ROOT, "lab"), check=True)
        except FileNotFoundError:
            # A machine without Go takes the program that another one built.
            if not os.path.exists(program):
                raise
        environment = {**os.environ, "GOMAXPROCS": str(threads)}
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        about = self.request(kind="describe")
        self.words, self.names = about["words"], about["names"]
        self.tasks = [n for n in self.names if n not in ("mention", "repeat")]
        self.taught = [n for n in self.tasks if n not in about["two_turns"]]

    def request(self, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        magic = self.read(4)
        if magic == b"GLJ1":
            answer = json.loads(self.read(struct.unpack("<I", self.read(4))[0]))
            if "error" in answer:
                raise ValueError(f"batches: {answer['error']}")
            return answer
        rows, columns, targets = struct.unpack("<III", self.read(12))
        ids = np.frombuffer(self.read(2 * rows * columns), "<u2").reshape(rows, columns).astype(np.int64)
        return Batch(ids, np.frombuffer(self.read(16 * targets), "<u4").reshape(targets, 4).astype(np.int64))

    def read(self, n):
        data = self.process.stdout.read(n)
        if len(data) < n:
            raise EOFError("batches: the program ended")
        return data

    def lessons(self, tokens, turns, weights, repeat, seed, first, rows):
        return self.request(kind="lessons", tokens=tokens, turns=turns, weights=weights,
                            repeat=repeat, seed=seed, first=first, rows=rows)

    def examples(self, task, split, tokens, seed, first, rows):
        return self.request(kind="examples", task=task, split=split, tokens=tokens,
                            seed=seed, first=first, rows=rows)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
