#!/usr/bin/env python3
"""PyTorch's side of lab/bench/bench_gpu.sh: the same ceilings, attention, prefill and LookaheadKV
training step on the same GPU, as well as PyTorch does them.

    python3 lab/bench/bench_gpu_pytorch.py --out FOLDER [--tiny] [--device cuda|cpu]

Writes FOLDER/pytorch.json. Weights are random bfloat16 in the shape of Llama 3.1 8B.
Attention over whole prompts is scaled_dot_product_attention, by itself with each of its fused
kernels (FlashAttention and cuDNN) that takes the shape, scores are computed eagerly
and on the observed rows only, the target is made without gradients. A step is run both
ways that lab/bench/bench_pytorch.py explains: "passes", as implementations of LookaheadKV (arXiv:2603.10899)
do, and "shared", on one prefill without gradients. Times are medians of CUDA events after
a warm-up. Without PyTorch, or without a GPU that it can use, the file says so, and that is
no error.
"""

import argparse
import json
import math
import sys
import time
from datetime import date
from pathlib import Path

CONFIG = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 33280, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
}
SIZES = {"prefill": [4096, 8192, 16384, 32768], "train": [2048, 8192, 16384], "response": 512, "product": 8192, "copy": 2 << 30, "repeats": 5}
TINY_CONFIG = CONFIG | {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "vocab_size": 64, "max_position_embeddings": 512,
}
TINY = {"prefill": [32, 64], "train": [32, 64], "response": 8, "product": 32, "copy": 1 << 15, "repeats": 2}


def write(folder, result):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pytorch.json"
    path.with_suffix(".tmp").write_text(json.dumps(result, indent=2) + "\n")
    path.with_suffix(".tmp").replace(path)


def skip(folder, why):
    print(f"pytorch: skipped: {why}")
    write(folder, {"part": "pytorch", "skipped": why})
    sys.exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--limit", type=float, default=420, help="seconds after which nothing more is begun")
    args = parser.parse_args()
    started = time.monotonic()
    try:
        import torch
        import torch.nn.functional as F
    except ImportError as e:
        skip(args.out, f"no PyTorch here ({e})")
    if args.device == "cuda" and not torch.cuda.is_available():
        skip(args.out, f"PyTorch {torch.__version__} finds no GPU")
    sys.path.insert(0, str(Path(__file__).parent))
    from bench_pytorch import ALPHA, MODULES, RANK, ROWS, Model, shapes, stored_name, trained

    torch.set_default_device(args.device)
    torch.manual_seed(1)
    on_gpu = args.device == "cuda"
    c, sizes = (TINY_CONFIG, TINY) if args.tiny else (CONFIG, SIZES)
    # PyTorch from 2.5 on need not widen keys and values for grouped queries.
    grouped = {"enable_gqa": True} if on_gpu and tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) >= (2, 5) else None

    class RandomModel(Model):
        def __init__(self):
            draw = lambda out, width: torch.empty(out, width, dtype=torch.bfloat16).normal_(std=width**-0.5)
            w = {"model.embed_tokens.weight": draw(c["vocab_size"], c["hidden_size"]), "model.norm.weight": torch.ones(c["hidden_size"], dtype=torch.bfloat16)}
            for l in range(c["num_hidden_layers"]):
                for module, (out, width) in shapes(c).items():
                    w[stored_name(l, module)] = draw(out, width)
                for norm in ("input_layernorm", "post_attention_layernorm"):
                    w[f"model.layers.{l}.{norm}.weight"] = torch.ones(c["hidden_size"], dtype=torch.bfloat16)
            self.bind(c, w, torch.bfloat16)

        def attention(self, q, k, v, causal):
            if grouped is None:
                return super().attention(q, k, v, causal)
            return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal, **grouped)[0]

    def timed(f):
        if not on_gpu:
            start = time.perf_counter()
            f()
            return 1000 * (time.perf_counter() - start)
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        f()
        b.record()
        b.synchronize()
        return a.elapsed_time(b)

    def median(f):
        times = []
        for i in range(sizes["repeats"] + 1):
            t = timed(f)
            slow = t > 20000 or time.monotonic() - started > args.limit
            if i > 0 or slow:
                times.append(t)
            if slow:
                break
        return sorted(times)[len(times) // 2]

    def fresh():
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    peak = lambda: torch.cuda.max_memory_allocated() if on_gpu else 0
    result = {
        "part": "pytorch", "date": date.today().isoformat(), "version": torch.__version__, "hardware": on_gpu,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu", "attention": [], "prefill": [], "train": [],
    }

    with torch.no_grad():
        x = torch.rand(sizes["copy"] // 4)
        y = torch.empty_like(x)
        ms = median(lambda: y.copy_(x))
        result["ceilings"] = {"copy_gb_s": 2 * 4 * x.numel() / ms / 1e6}
        del x, y
        n = sizes["product"]
        a, b = (torch.rand(n, n, dtype=torch.bfloat16) * 2 - 1 for _ in "ab")
        out = torch.empty(n, n, dtype=torch.bfloat16)

        def products():
            for _ in range(10):
                torch.mm(a, b.t(), out=out)

        result["ceilings"]["product_tflop_s"] = 10 * 2 * n**3 / median(products) / 1e9
        del a, b, out
    fresh()
    tokens = lambda n: (torch.arange(n) * 7919 + 13) % c["vocab_size"]

    def attempt(rows, row, f):
        """Measures into row; too little memory or time is a result, too."""
        rows.append(row)
        if time.monotonic() - started > args.limit:
            row["missing"] = "no time left"
            return
        fresh()
        try:
            row["ms"] = median(f)
            row["peak_bytes"] = peak()
        except RuntimeError as e:  # too little memory, or no kernel for the shape
            row["error"] = str(e).split(". ")[0]
        fresh()
        print(f"pytorch: {json.dumps(row)}", flush=True)
        write(args.out, result)

    from torch.nn.attention import SDPBackend, sdpa_kernel

    for n in sizes["prefill"]:
        q, k, v = (torch.randn(1, c[heads], n, c["head_dim"], dtype=torch.bfloat16) for heads in ("num_attention_heads", "num_key_value_heads", "num_key_value_heads"))
        if grouped is None:
            k, v = (x.repeat_interleave(c["num_attention_heads"] // c["num_key_value_heads"], 1) for x in (k, v))
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
            if not hasattr(SDPBackend, name):
                continue

            def attention():
                with torch.no_grad(), sdpa_kernel(getattr(SDPBackend, name)):
                    F.scaled_dot_product_attention(q, k, v, is_causal=True, **(grouped or {}))

            attempt(result["attention"], {"tokens": n, "kernel": name}, attention)
        del q, k, v

    m = RandomModel()
    for n in sizes["prefill"]:
        prompt = tokens(n)

        def prefill():
            with torch.no_grad():
                m.logits(m.run(m.embedding[prompt])[0])

        attempt(result["prefill"], {"tokens": n}, prefill)

    layers = len(m.layers)
    rows = torch.randn(ROWS, c["hidden_size"]).requires_grad_()
    lora = {
        (l, module): (torch.randn(RANK, width).mul_(width**-0.5).requires_grad_(), torch.randn(out, RANK).mul_(RANK**-0.5 / 8).requires_grad_())
        for l in range(layers) for module, (out, width) in shapes(c).items() if trained(l, module, layers)
    }
    for n in sizes["train"]:
        for way in ("shared", "passes"):
            prompt, response, r = tokens(n), tokens(sizes["response"]), sizes["response"]

            def step():
                for p in [rows] + [t for pair in lora.values() for t in pair]:
                    p.grad = None
                learned = rows.to(m.dtype)
                with torch.no_grad():
                    x, y = m.embedding[prompt], m.embedding[response]
                    if way == "shared":
                        past = m.run(x)[1]
                        target = m.run(y, past=past, scored=r, columns=n)[2]
                    else:
                        target = m.run(torch.cat([x, y]), scored=r, columns=n)[2]
                if way == "shared":
                    scores = m.run(learned, past=past, lora=lora, scored=ROWS, columns=n)[2]
                else:
                    scores = m.run(torch.cat([x, learned]), lora=lora, scored=ROWS, columns=n)[2]
                p, q = torch.stack(target), torch.stack(scores)
                p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
                loss = (p * (p.clamp_min(1e-30).log() - q.clamp_min(1e-30).log())).sum(-1).mean()  # LookaheadKV, arXiv:2603.10899, eq. 5
                loss.backward()

            attempt(result["train"], {"prompt": n, "response": r, "way": way}, step)
    result["seconds"] = time.monotonic() - started
    write(args.out, result)
    print(f"pytorch: {result['seconds']:.1f} s, result in {args.out / 'pytorch.json'}")


if __name__ == "__main__":
    main()
