#!/usr/bin/env python3
"""Looks for hazards of warpgroup products in machine code: reads what nvdisasm prints of a
kernel for Hopper, and reports every instruction that touches registers of a product that is
still running: those of its sum, read or written, and those of its left operand, written.
lab/gpu/check_machine_code.sh calls it.

    nvdisasm -c KERNEL.cubin | check_wgmma.py

A product runs from its HGMMA until a WARPGROUP.DEPBAR waits for its group. Instructions are
taken in the order of the program, without following branches: loops are unrolled, and what
runs from one turn into the next is not seen.
"""
import re
import sys

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,5})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)\s*(.*?)\s*;")
# Instructions whose first operand is no register that they write.
NO_RESULT = (
    "ST", "RED", "BAR", "BRA", "SYNCS", "WARP", "BSYNC", "BSSY", "EXIT", "ISETP", "FSETP", "PLOP", "R2UR", "NOP",
    "YIELD", "MEMBAR", "FENCE", "UTMA", "ELECT",
)


class Products:
    """The registers of products that are running, by the group that they were committed in."""

    def __init__(self) -> None:
        self.groups: list[tuple[set[int], set[int]]] = []
        self.sums: set[int] = set()
        self.lefts: set[int] = set()

    def start(self, operands: str, op: str) -> None:
        first, width = int(re.match(r"R(\d+)", operands).group(1)), int(re.search(r"64x(\d+)x", op).group(1))
        self.sums |= set(range(first, first + width // 2))
        left = re.match(r"R(\d+)$", operands.split(",")[1].strip())
        if left:
            self.lefts |= set(range(int(left.group(1)), int(left.group(1)) + 4))
        if "gsb0" in operands:
            self.groups.append((self.sums, self.lefts))
            self.sums, self.lefts = set(), set()

    def wait(self, left: int) -> None:
        self.groups = self.groups[len(self.groups) - left:] if left else []

    def running(self) -> tuple[set[int], set[int]]:
        return set().union(self.sums, *(g[0] for g in self.groups)), set().union(self.lefts, *(g[1] for g in self.groups))


def touched(op: str, operands: str) -> tuple[set[int], set[int]]:
    """The registers that an instruction writes and reads."""
    registers = [int(r) for r in re.findall(r"\bR(\d+)", operands)]
    if op.startswith(NO_RESULT) or not re.match(r"R\d+", operands):
        return set(), set(registers)
    wide = 4 if ".128" in op else 2 if ".64" in op or "WIDE" in op else 1
    return set(range(registers[0], registers[0] + wide)), set(registers[1:])


def main() -> int:
    kernel, products, seen, hazards, kernels = "", Products(), 0, 0, 0
    for line in sys.stdin:
        start = re.match(r"\.text\.(\S+):", line)
        if start:
            kernel, products, kernels = start.group(1), Products(), kernels + 1
            continue
        instruction = INSTRUCTION.search(line)
        if not instruction:
            continue
        at, op, operands = instruction.groups()
        if op.startswith("HGMMA"):
            seen += 1
            products.start(operands, op)
        elif op.startswith("WARPGROUP.DEPBAR"):
            products.wait(int(re.search(r"0x([0-9a-f]+)", operands).group(1), 16))
        else:
            sums, lefts = products.running()
            written, read = touched(op, operands)
            bad = written & (sums | lefts) or read & sums
            if bad:
                hazards += 1
                print(f"{kernel} {at}: {op} {operands}: R{min(bad)} belongs to a product that is running")
    print(f"{kernels} kernels, {seen} products, {hazards} hazards")
    if seen == 0:
        print("no product was seen")
    return 1 if hazards or seen == 0 else 0


sys.exit(main())
