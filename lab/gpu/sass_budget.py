#!/usr/bin/env python3
"""Holds the machine code of kernels against budgets: what a change of the sources or of the
compiler makes slower without a GPU to measure it on. lab/gpu/check_machine_code.sh calls it.

    sass_budget.py NVDISASM BUDGETS KERNEL.cubin...           # compares
    sass_budget.py NVDISASM BUDGETS --table KERNEL.cubin...   # prints what there is
    sass_budget.py NVDISASM BUDGETS --some KERNEL.cubin...    # budgets of other kernels are no fault

A line of BUDGETS is a pattern of kernels, what is counted, and what it may be; of several lines for the
same count the last one holds:

    registers        of a thread
    stack            bytes of a thread: arrays that are no registers, and spills
    loads            bytes of global memory that a thread has asked for, at most, before it uses any
    divisions        calls of 64-bit division, which takes some 70 instructions
    loop_divisions   those of them in loops
    overlap          exponentials between the two waits for warpgroup products, at least
    turn(T,U,...)/D  instructions of a turn of the loop that has the most tensor products in it (or, without
                     any, the most instructions), by D. Loops inside have T, U, ... turns, in the order of their
                     addresses (1 where no number is given); of branches the longest counts. A number may be a
                     fraction: 0 for what comes at a tensor's end alone.
    way(T,U,...)     the same of the shortest way that has the most tensor products
    ahead            bytes that a thread asks for before it waits for the kernel ahead (grid_wait); 0: it does not wait
    inner            instructions of the shortest way round the innermost loop with tensor products
"""
import fnmatch
import functools
import re
import struct
import subprocess
import sys

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,6})\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^\s*([.$][\w.$]+):\s*$")
TENSOR = ("HMMA", "HGMMA", "IMMA")
NO_RESULT = ("ST", "RED", "BAR", "BRA", "SYNCS", "WARP", "EXIT", "CALL", "RET", "LDGSTS", "NOP", "MEMBAR", "CCTL")


def sizes(cubin: bytes) -> dict[str, tuple[int, int]]:
    """Registers and bytes of stack by kernel, from a cubin's sections (ELF, 64 bits)."""
    at, entry, count, names = struct.unpack_from("<Q10xHHH", cubin, 0x28)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + i * entry) for i in range(count)]

    def text(table: tuple, offset: int) -> str:
        start = table[4] + offset
        return cubin[start:cubin.index(b"\0", start)].decode()

    named = {text(sections[names], s[0]): s for s in sections}
    symbols, found = named[".symtab"], {}
    at, end = named[".nv.info"][4], named[".nv.info"][4] + named[".nv.info"][5]
    while at < end:  # form, attribute, size; 0x2f and 0x11 have the symbol and its registers or frame
        form, attribute, size = struct.unpack_from("<BBH", cubin, at)
        if form == 4 and attribute in (0x2f, 0x11):
            symbol, value = struct.unpack_from("<II", cubin, at + 4)
            name = text(sections[symbols[6]], struct.unpack_from("<I", cubin, symbols[4] + 24 * symbol)[0])
            found.setdefault(name, {})[attribute] = value
        at += 4 + (size if form == 4 else 0)
    return {name: (values[0x2f], values[0x11]) for name, values in found.items() if 0x2f in values}


class Kernel:
    """Basic blocks of one kernel, the edges between them, and its loops."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name, self.code, self.blocks, labels = name, [], [], {}
        new, starts = True, []
        for line in lines:
            if label := LABEL.match(line):
                labels[label[1]], new = len(self.code), True
            elif found := INSTRUCTION.search(line):
                if new:
                    starts.append(len(self.code))
                self.code.append((found[3], found[4], bool(found[2]), int(found[1], 16)))
                new = found[3].split(".")[0] in ("BRA", "EXIT", "RET", "BRX")
        self.blocks = list(zip(starts, starts[1:] + [len(self.code)]))
        block_at = {start: i for i, start in enumerate(starts)}
        self.after: list[list[int]] = []
        for i, (_, end) in enumerate(self.blocks):
            op, operands, guarded, _ = self.code[end - 1]
            to, conditional = [], guarded or "P" in re.sub(r"`.*", "", operands) or "U.ANY" in op or ".DIV" in op
            if op.startswith("BRA"):
                target = re.search(r"`\(([^)]+)\)", operands)[1]
                if labels.get(target) in block_at:
                    to.append(block_at[labels[target]])
            if i + 1 < len(self.blocks) and (conditional or not op.startswith(("BRA", "EXIT", "RET", "BRX"))):
                to.append(i + 1)
            self.after.append(to)
        self.loops = self.find_loops()

    def find_loops(self) -> dict[int, set[int]]:
        """The blocks of every loop by its first block, which is on every way to the others."""
        before: list[list[int]] = [[] for _ in self.blocks]
        reached, todo = {0}, [0]
        while todo:
            for b in self.after[todo.pop()]:
                if b not in reached:
                    reached.add(b)
                    todo.append(b)
        for b in reached:
            for n in self.after[b]:
                before[n].append(b)
        dominators = {b: set(reached) for b in reached}
        dominators[0] = {0}
        changed = True
        while changed:
            changed = False
            for b in sorted(reached - {0}):
                new = {b} | set.intersection(*(dominators[p] for p in before[b]))
                if new != dominators[b]:
                    dominators[b], changed = new, True
        loops: dict[int, set[int]] = {}
        for b in reached:
            for head in self.after[b]:
                if head in dominators[b]:
                    body, todo = loops.setdefault(head, {head}), [b]
                    while todo:
                        n = todo.pop()
                        if n not in body:
                            body.add(n)
                            todo += before[n]
        return loops

    def ops(self, blocks: set[int], prefix: tuple[str, ...] = ("",)) -> int:
        return sum(op.startswith(prefix) for b in blocks for op, *_ in self.code[slice(*self.blocks[b])])

    def inside(self, head: int) -> list[int]:
        """The heads of the loops that lie directly in a loop, by address."""
        body = self.loops[head]
        inner = [h for h in sorted(self.loops) if h != head and h in body]
        return [h for h in inner if not any(h != o and h in self.loops[o] for o in inner)]

    def turn(self, head: int, trips: dict[int, float], short: bool) -> tuple[float, float]:
        """Tensor products and instructions of a turn of a loop, the longest way or the shortest of those with the most products."""
        holder = {b: h for h in self.inside(head) for b in self.loops[h]}

        @functools.cache
        def way(b: int) -> tuple[float, float]:
            if b in holder:
                h = holder[b]
                products, own = (trips.get(h, 1) * n for n in self.turn(h, trips, short))
                to = {n for m in self.loops[h] for n in self.after[m]} - self.loops[h]
            else:
                start, end = self.blocks[b]
                products, own, to = self.ops({b}, TENSOR), end - start, self.after[b]
            ways = [way(n) for n in to if n != head and n in self.loops[head]]
            best = max(ways, key=lambda w: (w[0], -w[1]) if short else w[1], default=(0, 0))
            return products + best[0], own + best[1]

        return way(head)

    def main_loop(self) -> int | None:
        outer = [h for h in self.loops if not any(h != o and h in self.loops[o] for o in self.loops)]
        return max(outer, key=lambda h: (self.ops(self.loops[h], TENSOR), self.ops(self.loops[h])), default=None)

    def turn_of(self, trips: list[float], short: bool) -> float:
        head = self.main_loop()
        if head is None:
            raise ValueError(f"{self.name} has no loop")
        inner = [h for h in sorted(self.loops) if h != head and h in self.loops[head]]
        return self.turn(head, dict(zip(inner, trips)), short)[1]

    def inner(self) -> int:
        innermost = [h for h in self.loops if not self.inside(h)]
        head = max(innermost, key=lambda h: self.ops(self.loops[h], TENSOR))
        best, todo = {head: 0}, [head]  # instructions before a block
        while todo:
            b = todo.pop()
            there = best[b] + self.blocks[b][1] - self.blocks[b][0]
            for n in self.after[b]:
                if n in self.loops[head] and (n not in best or there < best[n] or n == head and best[head] == 0):
                    best[n] = there
                    if n != head:
                        todo.append(n)
        return best[head]

    def loads(self) -> int:
        """Bytes of global loads that are on their way, at most, before one of their registers is read."""
        waiting: dict[int, int] = {}
        most = 0
        for op, operands, _, _ in self.code:
            registers = [int(r) for r in re.findall(r"\bR(\d+)", operands)]
            if op.startswith("LDG.") and registers:
                if any(r in waiting for r in registers[1:]):
                    waiting.clear()
                size = 16 if ".128" in op else 8 if ".64" in op else 1 if ".U8" in op or ".S8" in op else 2 if ".U16" in op else 4
                waiting |= {registers[0] + i: 4 if size >= 4 else size for i in range(max(1, size // 4))}
                most = max(most, sum(waiting.values()))
            else:
                writes = 0 if op.startswith(NO_RESULT) or not re.match(r"R\d", operands) else 1
                wide = {r + i for r in registers[writes:] for i in range(4 if ".128" in op and op.startswith("ST") else 2 if ".64" in op else 1)}
                if wide & set(waiting):
                    waiting.clear()
        return most

    def ahead(self) -> int:
        """Bytes of global loads before the wait for the kernel ahead."""
        size = 0
        for op, *_ in self.code:
            if op.startswith("ACQBULK"):
                return size
            if op.startswith("LDG."):
                size += 16 if ".128" in op else 8 if ".64" in op else 4
        return 0

    def overlap(self) -> int:
        """Exponentials between a wait that leaves a product running and the wait for it, at least."""
        counts, running = [], None
        for op, operands, _, _ in self.code:
            if op.startswith("WARPGROUP.DEPBAR"):
                if running is not None:
                    counts.append(running)
                running = 0 if int(re.search(r"0x([0-9a-f]+)", operands)[1], 16) else None
            elif op.startswith("MUFU.EX2") and running is not None:
                running += 1
        return min(counts, default=0)

    def calls(self, blocks: set[int]) -> int:
        return sum(op.startswith("CALL") and bool(re.search(r"(div|rem)_[us]64", operands))
                   for b in blocks for op, operands, *_ in self.code[slice(*self.blocks[b])])

    def value(self, what: str, size: tuple[int, int]) -> float:
        if turn := re.fullmatch(r"(turn|way)\(([\d.,]*)\)(?:/([\d.]+))?", what):
            return self.turn_of([float(t) for t in turn[2].split(",") if t], turn[1] == "way") / float(turn[3] or 1)
        return {
            "registers": lambda: size[0],
            "stack": lambda: size[1],
            "loads": self.loads,
            "overlap": self.overlap,
            "ahead": self.ahead,
            "inner": self.inner,
            "divisions": lambda: self.calls(set(range(len(self.blocks)))),
            "loop_divisions": lambda: self.calls(set().union(*self.loops.values())),
        }[what]()


def kernels_of(disassembler: str, path: str) -> tuple[list[Kernel], dict[str, tuple[int, int]]]:
    # It warns of the ABI of CUDA 12.
    listing = subprocess.run([disassembler, "-c", path], check=True, capture_output=True, text=True).stdout
    kernels, name, lines = [], "", []
    for line in [*listing.splitlines(), ".text.:"]:
        if start := re.match(r"\.text\.(\S*):", line):
            if name:
                kernels.append(Kernel(name, lines))
            name, lines = start[1], []
        else:
            lines.append(line)
    with open(path, "rb") as file:
        return kernels, sizes(file.read())


def main() -> int:
    disassembler, budgets, *files = sys.argv[1:]
    table, some = "--table" in files, "--some" in files
    with open(budgets) as file:
        rules = [line.split() for line in file if line.strip() and not line.startswith("#")]
    used, faults, counted, names = set(), [], 0, 0
    for path in files:
        if path.startswith("--"):
            continue
        kernels, of = kernels_of(disassembler, path)
        for kernel in kernels:
            names += 1
            rows = []
            matching = {rule[1]: i for i, rule in enumerate(rules) if fnmatch.fnmatchcase(kernel.name, rule[0])}
            used |= set(matching.values())
            for i in matching.values():
                _, what, sign, limit = rules[i]
                counted += 1
                value = kernel.value(what, of[kernel.name])
                rows.append(f"{what} {value:.0f}")
                if not {"<=": value <= float(limit), ">=": value >= float(limit)}[sign]:
                    faults.append(f"{kernel.name}: {what} is {value:.0f}, want {sign} {limit}")
            if table:
                head = kernel.main_loop()
                inner = [] if head is None else [h for h in sorted(kernel.loops) if h in kernel.loops[head]]
                loops = ", ".join(f"{kernel.code[kernel.blocks[h][0]][3]:#x} {kernel.ops(kernel.loops[h])} ({kernel.ops(kernel.loops[h], TENSOR)} products)" for h in inner)
                print(f"{kernel.name}: registers {of[kernel.name][0]}, loads {kernel.loads()}, {'; '.join(rows)}; loops: {loops or 'none'}")
    if not some:
        faults += [f"no kernel is called {rule[0]}" for i, rule in enumerate(rules) if i not in used]
    print("\n".join([*faults, f"{names} kernels, {counted} counts, {len(faults)} faults"]))
    return 1 if faults or not counted else 0


if __name__ == "__main__":
    sys.exit(main())
