#!/usr/bin/env python3
"""PyTorch's side of lab/bench/bench_pytorch.sh: a model of the shape of Llama 3.2 1B
with random bfloat16 weights, and a program that runs it as well as PyTorch can.

    python3 lab/bench/bench_pytorch.py make FOLDER [--layers N]
    python3 lab/bench/bench_pytorch.py serve FOLDER

`make` writes config.json, model.safetensors and sample.safetensors: prompt, response
and a LookaheadKV adapter. `serve` reads requests from standard input, JSON objects one
per line, and answers each with one line, {"seconds": …}:

  {"op": "prefill", "dtype": "bf16" | "f32"}             prompt to logits of its last token
  {"op": "decode", "dtype": …, "tokens": N}              N greedy tokens after the prompt
  {"op": "step", "dtype": …, "way": "passes" | "shared"} one LookaheadKV training step
  {"op": "gradients", "dtype": …, "way": …, "file": F}   the same, gradients and loss to F

Attention over whole prompts is scaled_dot_product_attention; scores are computed
eagerly, on the observed rows only; the target is made without gradients. "passes" runs
prompt + response, then prompt + learned rows with autograd, as implementations of
LookaheadKV (arXiv:2603.10899) do; "shared" prefills the prompt once without gradients and runs the
response and the learned rows on top of its keys and values, which is what this product
does.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

try:
    from safetensors.torch import load_file, save_file
except ImportError:  # bench_gpu_pytorch.py uses the model alone
    load_file = save_file = None

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
    "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True,
    "hidden_act": "silu", "eos_token_id": 1,
}
PROMPT, RESPONSE, ROWS, RANK, ALPHA = 1024, 64, 32, 8, 32.0
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# As in internal/benchclock.
now = time.process_time if os.environ.get("GLIMPSE_BENCH_CLOCK") == "cpu" else time.perf_counter
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def shapes(c):
    d, f, q, kv = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    return {"q_proj": (q, d), "k_proj": (kv, d), "v_proj": (kv, d), "o_proj": (d, q), "gate_proj": (f, d), "up_proj": (f, d), "down_proj": (d, f)}


def stored_name(layer, module):
    return f"model.layers.{layer}.{'self_attn' if module[0] in 'qkvo' else 'mlp'}.{module}.weight"


def trained(layer, module, layers):
    """Whether a module of a layer reaches a score."""
    return layer < layers - 1 or module in ("q_proj", "k_proj")


def make(folder, layers):
    c = CONFIG | {"num_hidden_layers": layers}
    folder.mkdir(parents=True, exist_ok=True)
    g = torch.Generator().manual_seed(1)
    draw = lambda out, width: torch.randn(out, width, generator=g).mul_(width**-0.5)
    w = {"model.embed_tokens.weight": draw(c["vocab_size"], c["hidden_size"]), "model.norm.weight": torch.ones(c["hidden_size"])}
    a = {"lookahead_embeddings": draw(ROWS, c["hidden_size"])}
    for l in range(layers):
        for module, (out, width) in shapes(c).items():
            w[stored_name(l, module)] = draw(out, width)
            if trained(l, module, layers):
                a[f"layers.{l}.{module}.lora_A"], a[f"layers.{l}.{module}.lora_B"] = draw(RANK, width), draw(out, RANK) / 8
        for norm in ("input_layernorm", "post_attention_layernorm"):
            w[f"model.layers.{l}.{norm}.weight"] = torch.ones(c["hidden_size"])
    save_file({k: v.bfloat16() for k, v in w.items()}, folder / "model.safetensors", {"format": "pt"})
    tokens = lambda n: torch.randint(0, c["vocab_size"], (n,), generator=g, dtype=torch.int32)
    save_file(a | {"prompt": tokens(PROMPT), "response": tokens(RESPONSE)}, folder / "sample.safetensors")
    (folder / "config.json").write_text(json.dumps(c))


class Model:
    def __init__(self, folder, dtype):
        self.bind(json.loads((folder / "config.json").read_text()), {k: v.to(dtype) for k, v in load_file(folder / "model.safetensors").items()}, dtype)

    def bind(self, c, w, dtype):
        self.c, self.dtype, self.embedding, self.norm = c, dtype, w["model.embed_tokens.weight"], w["model.norm.weight"]
        self.layers = [
            {m: w[stored_name(l, m)] for m in MODULES}
            | {"attention": w[f"model.layers.{l}.input_layernorm.weight"], "mlp": w[f"model.layers.{l}.post_attention_layernorm.weight"]}
            for l in range(c["num_hidden_layers"])
        ]
        half = c["head_dim"] // 2
        angles = torch.outer(torch.arange(c["max_position_embeddings"]).double(), c["rope_theta"] ** -(torch.arange(half) / half).double())
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def rms(self, x, w):
        return F.rms_norm(x, (x.shape[-1],), w, self.c["rms_norm_eps"])

    def rope(self, x, at):
        """x [heads, rows, dim] rotated to positions at …"""
        half = x.shape[-1] // 2
        cos, sin = self.cos[at : at + x.shape[1]], self.sin[at : at + x.shape[1]]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def wide(self, x):
        """Keys or values of all query heads from those of KV heads."""
        return x.repeat_interleave(self.c["num_attention_heads"] // self.c["num_key_value_heads"], 0)

    def heads(self, x):
        return x.view(x.shape[0], -1, self.c["head_dim"]).transpose(0, 1)

    def attention(self, q, k, v, causal):
        return F.scaled_dot_product_attention(q[None], self.wide(k)[None], self.wide(v)[None], is_causal=causal)[0]

    def run(self, x, past=None, lora=None, scored=0, columns=0, grow=None):
        """Runs rows x on top of past, a list of (k, v) per layer [kvHeads, n, dim], and
        returns the hidden rows, the (k, v) of all rows and, of the last `scored` rows,
        the mean attention probabilities on the first `columns` columns per layer. grow
        holds keys and values in memory that is large enough, and its length. lora acts
        on the last ROWS rows."""
        n = past[0][0].shape[1] if past else grow["n"] if grow else 0
        rows, kept, scores = x.shape[0], [], []
        for l, w in enumerate(self.layers):
            def linear(module, x):
                y = F.linear(x, w[module])
                if lora is None or (l, module) not in lora:
                    return y
                a, b = lora[l, module]
                low = F.linear(F.linear(x[-ROWS:], a.to(self.dtype)), b.to(self.dtype)) * (ALPHA / RANK)
                return y + low if rows == ROWS else torch.cat([y[:-ROWS], y[-ROWS:] + low])

            h = self.rms(x, w["attention"])
            q, k, v = (self.heads(linear(m, h)) for m in ("q_proj", "k_proj", "v_proj"))
            q, k = self.rope(q, n), self.rope(k, n)
            if grow:
                for new, all in ((k, grow["kv"][l][0]), (v, grow["kv"][l][1])):
                    all[:, n : n + rows] = new
                k, v = (t[:, : n + rows] for t in grow["kv"][l])
            elif past:
                k, v = (torch.cat([old, new], 1) for old, new in zip(past[l], (k, v)))
            kept.append((k, v))
            if scored:
                K = self.wide(k)
                # Few rows: their probabilities serve the output as well if nothing else runs.
                logits = (q[:, -scored:] @ K.transpose(1, 2)).float() * self.c["head_dim"] ** -0.5
                mask = torch.ones(scored, K.shape[1], dtype=torch.bool).triu(K.shape[1] - scored + 1)
                p = logits.masked_fill(mask, -math.inf).softmax(-1)
                scores.append(p[:, :, :columns].mean(1))
                if l == len(self.layers) - 1:
                    break
            if scored == rows:
                out = p.to(self.dtype) @ self.wide(v)
            else:
                out = self.attention(q, k, v, rows > 1 and not n)
            x = x + linear("o_proj", out.transpose(0, 1).reshape(rows, -1))
            h = self.rms(x, w["mlp"])
            x = x + linear("down_proj", F.silu(linear("gate_proj", h)) * linear("up_proj", h))
        if grow:
            grow["n"] = n + rows
        return x, kept, scores

    def logits(self, x):
        return F.linear(self.rms(x[-1:], self.norm), self.embedding)


class Peer:
    def __init__(self, folder):
        self.folder, self.models = folder, {}
        self.sample = load_file(folder / "sample.safetensors")
        self.prompt, self.response = self.sample.pop("prompt"), self.sample.pop("response")
        self.parameters = {k: v.clone().requires_grad_() for k, v in self.sample.items()}

    def model(self, dtype):
        if dtype not in self.models:
            self.models = {}  # one at a time
            self.models[dtype] = Model(self.folder, DTYPES[dtype])
        return self.models[dtype]

    @torch.no_grad()
    def prefill(self, dtype):
        m = self.model(dtype)
        start = now()
        m.logits(m.run(m.embedding[self.prompt])[0])
        return now() - start

    @torch.no_grad()
    def decode(self, dtype, tokens):
        m = self.model(dtype)
        c, n = m.c, len(self.prompt)
        grow = {"n": 0, "kv": [[torch.empty(c["num_key_value_heads"], n + tokens, c["head_dim"], dtype=m.dtype) for _ in "kv"] for _ in m.layers]}
        token = m.logits(m.run(m.embedding[self.prompt], grow=grow)[0]).argmax(-1)
        start = now()
        for _ in range(tokens):
            token = m.logits(m.run(m.embedding[token], grow=grow)[0]).argmax(-1)
        return now() - start

    def step(self, dtype, way):
        m, n, r = self.model(dtype), len(self.prompt), len(self.response)
        for p in self.parameters.values():
            p.grad = None
        layers = len(m.layers)
        lora = {(l, module): tuple(self.parameters[f"layers.{l}.{module}.lora_{x}"] for x in "AB")
                for l in range(layers) for module in MODULES if trained(l, module, layers)}
        start = now()
        learned = self.parameters["lookahead_embeddings"].to(m.dtype)
        with torch.no_grad():
            prompt, response = m.embedding[self.prompt], m.embedding[self.response]
            if way == "shared":
                past = m.run(prompt)[1]
                target = m.run(response, past=past, scored=r, columns=n)[2]
            else:
                target = m.run(torch.cat([prompt, response]), scored=r, columns=n)[2]
        if way == "shared":
            scores = m.run(learned, past=past, lora=lora, scored=ROWS, columns=n)[2]
        else:
            scores = m.run(torch.cat([prompt, learned]), lora=lora, scored=ROWS, columns=n)[2]
        p, q = torch.stack(target), torch.stack(scores)
        p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
        loss = (p * (p.log() - q.log())).sum(-1).mean()  # LookaheadKV, arXiv:2603.10899, eq. 5
        loss.backward()
        seconds = now() - start
        return seconds, loss.item()

    def answer(self, op, dtype, tokens=0, way="", file=""):
        if op == "prefill":
            return self.prefill(dtype)
        if op == "decode":
            return self.decode(dtype, tokens)
        seconds, loss = self.step(dtype, way)
        if op == "gradients":
            save_file({k: p.grad for k, p in self.parameters.items()} | {"loss": torch.tensor([loss])}, file)
        return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("command", choices=["make", "serve"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=CONFIG["num_hidden_layers"])
    args = parser.parse_args()
    if args.command == "make":
        make(args.folder, args.layers)
        return
    torch.set_num_threads(int(os.environ.get("GLIMPSE_PEER_THREADS", "2")))
    peer = Peer(args.folder)
    print(json.dumps({"version": torch.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"seconds": peer.answer(**json.loads(line))}), flush=True)


if __name__ == "__main__":
    main()
