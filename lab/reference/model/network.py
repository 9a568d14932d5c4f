"""The reference model in PyTorch: Llama's architecture, started so that retrieval is
learned soon."""

import math

import torch
import torch.nn.functional as F

# Hidden size, layers, query and KV heads, head size, feed-forward size. Both have more
# layers than their tasks need; what is left over is room for learned rows.
SIZES = {
    "reference": dict(d=192, nl=8, nh=4, nkv=2, dh=32, ff=384),
    "draft": dict(d=128, nl=4, nh=4, nkv=2, dh=32, ff=192),
}

# With base 10⁶, 7 of 16 rotary pairs turn by less than a radian over 2,048 positions, and
# can compare contents at any distance; with 10⁴ there are 3.
THETA = 1e6


def config(size, vocab):
    return dict(SIZES[size], vocab=vocab, theta=THETA, eps=1e-5, tied=False)


def parameters(c, seed):
    """Initial parameters, float32, by the short names that
    export.py knows."""
    g = torch.Generator().manual_seed(seed)
    d, heads, kv, ff = c["d"], c["nh"] * c["dh"], c["nkv"] * c["dh"], c["ff"]
    residual = 1 / math.sqrt(2 * c["nl"])

    def matrix(rows, columns, std):
        return torch.randn(rows, columns, generator=g) * std

    p = {"emb": matrix(c["vocab"], d, 1.0), "head": matrix(c["vocab"], d, d**-0.5), "norm": torch.ones(d)}
    for l in range(c["nl"]):
        p[f"{l}_q"], p[f"{l}_k"], p[f"{l}_v"] = (matrix(n, d, d**-0.5) for n in (heads, kv, kv))
        p[f"{l}_o"] = matrix(d, heads, heads**-0.5 * residual)
        p[f"{l}_g"], p[f"{l}_u"] = matrix(ff, d, d**-0.5), matrix(ff, d, d**-0.5)
        p[f"{l}_w"] = matrix(d, ff, ff**-0.5 * residual)
        p[f"{l}_n1"], p[f"{l}_n2"] = torch.ones(d), torch.ones(d)
    prepare(p, c, g)
    return p


def prepare(p, c, g):
    """Change random matrices so that attention starts near what retrieval needs.

    Queries are like keys (Trockman and Kolter 2023, arXiv:2305.09828), so that tokens
    attend to tokens like them; outputs are like transposed values, so that what is read
    is written as it was; and the query heads of layer 0's first KV head look one, two, …
    tokens back whatever the tokens are, which induction builds upon. From a standard
    initialisation retrieval is not learned in twice the time that this takes.
    """
    alike, copied = 0.7, 0.5
    groups, dh = c["nh"] // c["nkv"], c["dh"]
    for l in range(c["nl"]):
        if l > 0:
            q, k = p[f"{l}_q"].view(c["nkv"], groups, dh, -1), p[f"{l}_k"].view(c["nkv"], 1, dh, -1)
            q.mul_(math.sqrt(1 - alike**2)).add_(alike * k)
        v = p[f"{l}_v"].view(c["nkv"], 1, dh, -1).expand(-1, groups, -1, -1).reshape(c["nh"] * dh, -1)
        p[f"{l}_o"].add_(copied * v.t())

    # All embeddings share a component; the offset heads see nothing else.
    common = torch.randn(c["d"], generator=g)
    p["emb"].add_(common)
    direction = (common / common.norm())[None]
    key = torch.zeros(1, dh)
    key[:, : dh // 2] = 0.7
    p["0_k"][:dh].mul_(0.3).add_(key.t() @ direction)
    for i in range(groups):
        cos, sin = rotary(torch.tensor([-(i + 1.0)]), c)
        p["0_q"][i * dh : (i + 1) * dh].mul_(0.3).add_(rotate(key, cos, sin).t() @ direction)
    p["head"].mul_(0.3).add_(0.03 * (p["emb"] - common))


def rotary(positions, c):
    """Cosines and sines [positions, dh/2] of the rotary embedding."""
    half = c["dh"] // 2
    angles = positions[:, None] * c["theta"] ** (-torch.arange(half, device=positions.device) / half)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def hidden(p, c, ids, attention, products=torch.bfloat16):
    """The hidden states [rows, columns, d] before the last norm. Attention and products
    with matrices are in the types given, all else is in float32."""
    rows, columns = ids.shape
    nh, nkv, dh = c["nh"], c["nkv"], c["dh"]
    cos, sin = rotary(torch.arange(columns, device=ids.device, dtype=torch.float32), c)
    cos, sin = cos[:, None].to(attention), sin[:, None].to(attention)

    def linear(x, *names):
        return F.linear(x, torch.cat([p[n] for n in names]).to(products))

    x = F.embedding(ids, p["emb"])
    for l in range(c["nl"]):
        h = F.rms_norm(x, (c["d"],), p[f"{l}_n1"], c["eps"]).to(products)
        qkv = linear(h, f"{l}_q", f"{l}_k", f"{l}_v").view(rows, columns, nh + 2 * nkv, dh).to(attention)
        qk = rotate(qkv[:, :, : nh + nkv], cos, sin).transpose(1, 2)
        k, v = (t.repeat_interleave(nh // nkv, 1) for t in (qk[:, nh:], qkv[:, :, nh + nkv :].transpose(1, 2)))
        o = F.scaled_dot_product_attention(qk[:, :nh], k, v, is_causal=True)
        x = x + linear(o.transpose(1, 2).reshape(rows, columns, nh * dh).to(products), f"{l}_o")
        h = F.rms_norm(x, (c["d"],), p[f"{l}_n2"], c["eps"]).to(products)
        gate, up = linear(h, f"{l}_g", f"{l}_u").chunk(2, -1)
        x = x + linear(F.silu(gate) * up, f"{l}_w")
    return x


def logits(p, c, x):
    """Logits of hidden states [n, d], in float32."""
    return F.linear(F.rms_norm(x, (c["d"],), p["norm"], c["eps"]), p["head"])


def operations(c, columns):
    """Floating-point operations per token, forward and backward, of products with matrices
    and of causal attention over so many columns."""
    d, heads, kv = c["d"], c["nh"] * c["dh"], c["nkv"] * c["dh"]
    weights = c["nl"] * (2 * d * heads + 2 * d * kv + 3 * d * c["ff"])
    return 6 * weights, c["nl"] * 3.5 * 2 * heads * columns
