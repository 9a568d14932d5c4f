import json
import math
import operator
from functools import reduce
from pathlib import Path


class HeadBudgets:
    """What share of a prompt each KV head keeps, learned once for a model: budgets.json of ``train budgets`` (KVzip,
    arXiv:2505.23416, section 3.3, a static variant). The arithmetic is that of evict, in its order, so that budgets are
    the same to the entry."""

    def __init__(self, file: str | Path):
        read = json.loads(Path(file).read_text())
        if read.get("format") != "glimpse-head-budgets" or read["version"] != 1:
            raise ValueError(f"{file}: got {read.get('format')} {read.get('version')}, want glimpse-head-budgets 1")
        self.file = file
        self.shares = [(at["budget"], at["heads"]) for at in read["budgets"]]  # by ascending budget: [layer][KV head] in [0, 1]
        budgets = [budget for budget, _ in self.shares]
        if not budgets or budgets != sorted(set(budgets)) or not 0 < budgets[0] <= budgets[-1] < 1:
            raise ValueError(f"{file}: got budgets {budgets}, want shares in (0, 1) that ascend")

    def check(self, layers: int, kv_heads: int):
        """ValueError unless the shares are of a model with so many layers and KV heads."""
        for budget, heads in self.shares:
            if [len(layer or ()) for layer in heads] != [kv_heads] * layers:
                raise ValueError(f"{self.file}: budget {budget}: got heads {[len(layer or ()) for layer in heads]}, want {kv_heads} in each of {layers} layers")

    def of(self, length: int, budget: int, least: int) -> list[list[int]]:
        """Entries of length that each head keeps [layer][KV head], least or more. Their mean is budget."""
        layers, kv_heads = len(self.shares[0][1]), len(self.shares[0][1][0])
        least = min(least, budget)
        if budget == length or length == least:
            return [[budget] * kv_heads for _ in range(layers)]
        shares = self.at((budget - least) / (length - least))
        fill(shares, (budget - least) * len(shares), length - least)
        whole = [least + n for n in apportion(shares)]
        return [whole[i : i + kv_heads] for i in range(0, len(whole), kv_heads)]

    def at(self, share: float) -> list[float]:
        """Shares of all heads, layer by layer, where the mean is share: between two known budgets in proportion."""
        heads = [(budget, [x for layer in layers for x in layer]) for budget, layers in self.shares]
        count = len(heads[0][1])
        known = [(0.0, [0.0] * count), *heads, (1.0, [1.0] * count)]
        i = next(i for i in range(1, len(known)) if known[i][0] >= share)
        (low, fewer), (high, more) = known[i - 1], known[i]
        t = (share - low) / (high - low)
        return [a + t * (b - a) for a, b in zip(fewer, more)]


def fill(shares: list[float], pool: float, most: float):
    """Scales shares so that they sum to pool and none is above most. What one cannot take goes to the others in
    proportion, and equally where these have none."""
    full, total = [False] * len(shares), in_order(shares)
    while True:
        if total <= 0:
            for i in range(len(shares)):
                if not full[i]:
                    shares[i] = min(most, pool / full.count(False))
            return
        factor, again = pool / total, False
        for i, x in enumerate(shares):
            if not full[i] and x * factor > most:
                full[i], again, shares[i] = True, True, most
                pool, total = pool - most, total - x
        if not again:
            shares[:] = [x if full[i] else x * factor for i, x in enumerate(shares)]
            return


def apportion(shares: list[float]) -> list[int]:
    """Whole numbers with the sum of the shares: the largest fractions are rounded up, of equal ones the first."""
    whole = [int(x + 1e-9) for x in shares]
    fractions = [math.floor(1e9 * (x - n) + 0.5) for x, n in zip(shares, whole)]
    rest = int(in_order(shares) + 1e-6) - sum(whole)
    for i in sorted(range(len(shares)), key=lambda i: -fractions[i])[: max(0, rest)]:
        whole[i] += 1
    return whole


def in_order(numbers: list[float]) -> float:
    """The sum from first to last. Python 3.12's own corrects its rounding, and evict's does not."""
    return reduce(operator.add, numbers, 0.0)
