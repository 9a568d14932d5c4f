#!/usr/bin/env python3
"""Check the C++ layers, clipping and Muon against network.py, PyTorch and muon.py.

    python3 lab/reference/model/check_fused.py

Hidden states and the gradient of every weight, of initial and of sharper weights, may
differ from those in float32 by at most twice what network.py's in bfloat16 differ, and are
the same bits twice. Needs PyTorch, a C++ compiler and a processor with AVX512_BF16.
"""

import os
import sys

import torch

import fused
import network
from lessons import ROOT
from muon import Muon

# Rows and columns: less than a block of 64 or of 128 tokens, parts of one, and several.
SHAPES = ((3, 64), (5, 16), (2, 80), (3, 300), (1, 1040))
LARGEST_RATIO = 2.0


def difference(got, want):
    return ((got - want).norm() / want.norm()).item()


def gradients(p, x, upstream):
    for t in p.values():
        t.grad = None
    (x * upstream).sum().backward()
    return {"hidden": x.detach().clone(), **{n: t.grad.clone() for n, t in p.items() if t.grad is not None}}


def check_layers(size, sharper):
    c = network.config(size, 400)
    p = {n: torch.nn.Parameter(t * (sharper if n.endswith(("_q", "_k")) else 1)) for n, t in network.parameters(c, 1).items()}
    worst = 0.0
    for rows, columns in SHAPES:
        g = torch.Generator().manual_seed(rows)
        ids = torch.randint(c["vocab"], (rows, columns), generator=g)
        upstream = torch.randn(rows, columns, c["d"], generator=g)
        want, rounded = (gradients(p, network.hidden(p, c, ids, t, t), upstream) for t in (torch.float32, torch.bfloat16))
        got, again = (gradients(p, fused.hidden(p, c, ids), upstream) for _ in range(2))
        for n, value in want.items():
            if not torch.equal(got[n], again[n]):
                sys.exit(f"check_fused: {size}, {rows} rows of {columns}: {n} is not the same twice")
            error, noise = difference(got[n], value), difference(rounded[n], value)
            worst = max(worst, error / noise)
            if not error <= LARGEST_RATIO * noise:
                sys.exit(f"check_fused: {size}, {rows} rows of {columns}: {n} differs by {error:.2e}, network.py in bfloat16 by {noise:.2e}")
    print(f"{size}, queries and keys times {sharper}: at most {worst:.2f} times the difference of network.py in bfloat16")


def check_optimizer():
    g = torch.Generator().manual_seed(1)
    c = network.config("reference", 400)
    begin = {n: t for n, t in network.parameters(c, 1).items() if t.ndim == 2 and n not in ("emb", "head")}
    pushes = [{n: torch.randn(t.shape, generator=g) for n, t in begin.items()} for _ in range(3)]
    ends = []
    for step, clip in ((None, torch.nn.utils.clip_grad_norm_), (fused.muon, fused.clip)):
        p = {n: torch.nn.Parameter(t.clone()) for n, t in begin.items()}
        optimizer = Muon(p.values(), 0.02, fused=step)
        for push in pushes:
            for n, t in p.items():
                t.grad = push[n].clone()
            norm = float(clip(p.values(), 1.0))
            optimizer.step()
        ends.append((norm, p, {n: optimizer.state[t]["momentum"] for n, t in p.items()}))
    (norm, want, momenta), (got_norm, got, got_momenta) = ends
    update = max(difference(got[n].detach() - begin[n], want[n].detach() - begin[n]) for n in begin)
    momentum = max(difference(got_momenta[n], momenta[n]) for n in begin)
    print(f"three steps of Muon: update differs by {update:.1e}, momentum by {momentum:.1e}, norm by {abs(got_norm / norm - 1):.1e}")
    # bfloat16 has 8 bits, and five steps of Newton-Schulz multiply its error.
    if not (update < 0.05 and momentum < 1e-5 and abs(got_norm / norm - 1) < 1e-5):
        sys.exit("check_fused: the optimizer differs")


def main():
    why = fused.build(os.path.join(ROOT, "out", "reference_model", "compiled"))
    if why:
        sys.exit(f"check_fused: {why}")
    for size in network.SIZES:
        for sharper in (1, 2):
            check_layers(size, sharper)
    check_optimizer()


if __name__ == "__main__":
    main()
