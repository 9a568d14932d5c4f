#!/usr/bin/env python3
"""Makes training/testdata/staying: one step of rows that stay (RestoreKV, arXiv:2608.01247) on a tiny Llama, with PyTorch.

    pip install torch==2.15.0 safetensors==0.8.0 numpy
    python3 lab/golden/golden_staying.py

The model of model/testdata/golden/llama3.2-tied is written out here in float64, since transformers rounds norms, angles
and softmax to float32. One pass runs prompt, learned rows and answer in a row. Masks say who attends to whom:

  prompt   causally to itself
  rows     to the whole prompt and causally to each other; LoRA acts on them alone
  answer   in each KV head to what is kept of the prompt, to the last STAY rows, and causally to itself

A head keeps the entries to which the rows pay the highest attention, in the mean over its group. The loss is KL(full cache ‖
evicted cache) of the next token, mean over the answer, and KL(target ‖ scores) of the rows' attention to the prompt, mean
over layers and heads. The target is the attention of the same answer with the whole cache. Autograd goes through everything.

step.json holds settings, tokens, the loss and what is kept [layers][KV heads]. step.safetensors holds the adapter as
float32, and grad.NAME as float64.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
MODEL = "llama3.2-tied"
OUT = ROOT / "training/testdata/staying"
ROWS, STAY, RANK, ALPHA, BUDGET = 11, 8, 2, 4.0, 30
PROMPT = [(7 * i * i + 3 * i) % 251 for i in range(100)]
ANSWER = [(5 * i * i + 11 * i + 1) % 241 for i in range(13)]

folder = ROOT / "model/testdata/golden" / MODEL
config = json.loads((folder / "config.json").read_text())
weights = {k: torch.from_numpy(v.astype(np.float64)) for k, v in load_file(folder / "model.safetensors").items()}
LAYERS, HEADS, KV_HEADS, DIM = (config[k] for k in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"))
MODULES = {"self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"), "mlp": ("gate_proj", "up_proj", "down_proj")}


def frequencies():
    """Radians a position of llama3's scaling, each step rounded to float32 as transformers rounds it."""
    scaling = config["rope_scaling"]
    exponents = np.arange(0, DIM, 2, dtype=np.float32) / np.float32(DIM)
    plain = np.float32(1) / np.power(config["rope_theta"], exponents.astype(np.float64)).astype(np.float32)
    turns = scaling["original_max_position_embeddings"] * plain.astype(np.float64) / (2 * math.pi)
    ramp = np.clip((turns - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"]), 0, 1)
    return ((1 - ramp) * plain / scaling["factor"] + ramp * plain).astype(np.float32)


def rotated(x):
    """Queries or keys [heads, positions, dim], halves that follow each other."""
    angles = np.arange(x.shape[1], dtype=np.float32)[:, None] * frequencies()[None]
    cos, sin = torch.from_numpy(np.cos(angles.astype(np.float64))), torch.from_numpy(np.sin(angles.astype(np.float64)))
    a, b = x[..., : DIM // 2], x[..., DIM // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def norm(x, name):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weights[name]


def run(x, mask_of, lora=None, rows=slice(0, 0)):
    """Logits of embeddings x [positions, hidden], and the probabilities [heads, positions, positions] of each layer. mask_of gives
    what a layer's query heads may see from its logits."""
    n, probabilities = len(x), []

    def linear(layer, part, module, h):
        name = f"model.layers.{layer}.{part}.{module}.weight"
        y = h @ weights[name].T
        factors = (lora or {}).get(f"layers.{layer}.{module}")
        if factors is None:
            return y
        A, B = factors
        update = torch.zeros_like(y)
        update[rows] = ALPHA / RANK * (h[rows] @ A.T @ B.T)
        return y + update

    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        h = norm(x, at + "input_layernorm.weight")
        heads = lambda module, count: linear(layer, "self_attn", module, h).reshape(n, count, DIM).transpose(0, 1)
        q, k, v = rotated(heads("q_proj", HEADS)), rotated(heads("k_proj", KV_HEADS)), heads("v_proj", KV_HEADS)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 0) for t in (k, v))
        logits = q @ k.transpose(1, 2) / math.sqrt(DIM)
        p = logits.masked_fill(~mask_of(layer, logits), -math.inf).softmax(-1)
        probabilities.append(p)
        x = x + linear(layer, "self_attn", "o_proj", (p @ v).transpose(0, 1).reshape(n, HEADS * DIM))
        h = norm(x, at + "post_attention_layernorm.weight")
        gate, up = (linear(layer, "mlp", m, h) for m in ("gate_proj", "up_proj"))
        x = x + linear(layer, "mlp", "down_proj", torch.nn.functional.silu(gate) * up)
    return norm(x, "model.norm.weight") @ weights["model.embed_tokens.weight"].T, probabilities


def causal(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


def kl(target, logits):
    """KL(target ‖ softmax(logits)) of rows, target normalised."""
    return (target * (target.log() - logits.log_softmax(-1))).sum(-1).mean()


def parameter(generator, *shape, scale):
    return torch.nn.Parameter((scale * torch.randn(shape, generator=generator)).float().double())


def main():
    generator = torch.Generator().manual_seed(1)
    table = weights["model.embed_tokens.weight"]
    n, m = len(PROMPT), len(ANSWER)
    parameters = {"lookahead_embeddings": parameter(generator, ROWS, table.shape[1], scale=float(table.std()))}
    lora = {}
    for layer in range(LAYERS):
        for part, modules in MODULES.items():
            for module in modules:
                if layer == LAYERS - 1 and module not in ("q_proj", "k_proj"):  # which reach no score
                    continue
                out, width = weights[f"model.layers.{layer}.{part}.{module}.weight"].shape
                at = f"layers.{layer}.{module}"
                lora[at] = parameter(generator, RANK, width, scale=width**-0.5), parameter(generator, out, RANK, scale=RANK**-0.5)
                parameters |= {at + ".lora_A": lora[at][0], at + ".lora_B": lora[at][1]}

    with torch.no_grad():
        teacher, attention = run(table[PROMPT + ANSWER], lambda layer, logits: causal(n + m))
        teacher = teacher[n:]
        target = torch.stack(attention)[:, :, n:, :n].mean(2)

    kept = []

    def mask_of(layer, logits):
        mask = causal(n + ROWS + m).expand(HEADS, -1, -1).clone()
        seen = logits[:, n : n + ROWS, : n + ROWS].masked_fill(~mask[:, n : n + ROWS, : n + ROWS], -math.inf).softmax(-1)
        scores = seen[:, :, :n].mean(1).reshape(KV_HEADS, -1, n).mean(1)
        kept.append([sorted(s.topk(BUDGET - STAY).indices.tolist()) for s in scores])
        mask[:, n + ROWS :, : n + ROWS - STAY] = False
        for h in range(HEADS):
            mask[h, n + ROWS :, kept[-1][h // (HEADS // KV_HEADS)]] = True
        return mask

    x = torch.cat([table[PROMPT], parameters["lookahead_embeddings"], table[ANSWER]])
    logits, attention = run(x, mask_of, lora, slice(n, n + ROWS))
    scores = torch.stack(attention)[:, :, n : n + ROWS, :n].mean(2)
    of_answer = kl(teacher.softmax(-1), logits[n + ROWS :])
    of_scores = kl(target / target.sum(-1, keepdim=True), scores.log())
    (of_answer + of_scores).backward()

    OUT.mkdir(parents=True, exist_ok=True)
    tensors = {k: p.detach().float().numpy() for k, p in parameters.items()} | {f"grad.{k}": p.grad.numpy() for k, p in parameters.items()}
    save_file({k: np.ascontiguousarray(t) for k, t in tensors.items()}, OUT / "step.safetensors")
    (OUT / "step.safetensors").chmod(0o644)
    (OUT / "step.json").write_text(json.dumps({
        "versions": {p.__name__: p.__version__ for p in (torch, np)}, "model": MODEL, "prompt": PROMPT, "response": ANSWER, "rows": ROWS, "rank": RANK,
        "alpha": ALPHA, "budget": BUDGET, "loss": (of_answer + of_scores).item(), "answer_loss": of_answer.item(), "kept": kept}) + "\n")
    print(f"KL of the answer {of_answer.item():.6f}, of scores {of_scores.item():.6f}, {len(parameters)} gradients, "
          f"{(OUT / 'step.safetensors').stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
