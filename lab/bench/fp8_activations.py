"""What rounding the activations of a prompt to 8-bit floats changes, beside rounding them to bf16: the products of linear
layers, the entries that SnapKV keeps at a tenth, and the next token's distribution.

    python3 lab/bench/fp8_activations.py MODEL.gguf multi_news.jsonl    # needs torch, transformers, gguf

Rows are rounded as fine-grained FP8 checkpoints are run (transformers, DeepSeek-V3): e4m3, with a scale for 128 numbers of a
row each (64 where 128 do not divide it). Weights are those of the file. Eight prompts of 1,000 tokens.
"""

import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

WINDOW, KERNEL, PROMPTS, TOKENS = 32, 7, 8, 1000
rounding, error = "", {}


def rounded(x):
    if rounding == "bf16":
        return x.bfloat16().float()
    if rounding == "e4m3":
        group = next(g for g in (128, 64, x.shape[-1]) if x.shape[-1] % g == 0)
        groups = x.reshape(-1, group)
        scale = groups.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448
        return ((groups / scale).to(torch.float8_e4m3fn).float() * scale).reshape(x.shape)
    return x


def linear(layer):
    def forward(x):
        y = torch.nn.functional.linear(rounded(x), layer.weight, layer.bias)
        if rounding:
            exact = torch.nn.functional.linear(x, layer.weight, layer.bias)
            sums = error.setdefault(rounding, [0.0, 0.0])
            sums[0] += (y - exact).square().sum().item()
            sums[1] += exact.square().sum().item()
        return y

    layer.forward = forward


def run(model, ids):
    with torch.no_grad():
        out = model(ids, output_attentions=True)
    kept = []
    for attention in out.attentions:
        scores = attention[0, :, -WINDOW:, : ids.shape[1] - WINDOW].sum(1)
        scores = scores.reshape(model.config.num_key_value_heads, -1, scores.shape[-1]).mean(1)
        pooled = torch.nn.functional.max_pool1d(scores[None], KERNEL, 1, KERNEL // 2)[0]
        kept += [set(head) for head in pooled.topk(ids.shape[1] // 10).indices.tolist()]
    return kept, out.logits[0, -1].log_softmax(-1)


def main():
    global rounding
    folder, file = os.path.split(os.path.abspath(sys.argv[1]))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, attn_implementation="eager", dtype=torch.float32).eval()
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and "lm_head" not in name:
            linear(layer)
    alike, divergence = {"bf16": [], "e4m3": []}, {"bf16": [], "e4m3": []}
    with open(sys.argv[2]) as f:
        prompts = [json.loads(line)["context"] for _, line in zip(range(PROMPTS), f)]
    for text in prompts:
        ids = tokenizer(text[:20000], return_tensors="pt").input_ids[:, :TOKENS]
        rounding = ""
        exact, p = run(model, ids)
        for rounding in alike:
            kept, q = run(model, ids)
            alike[rounding].append(sum(len(a & b) for a, b in zip(exact, kept)) / sum(map(len, exact)))
            divergence[rounding].append((p.exp() * (p - q)).sum().item())
    for rounding, (wrong, all_) in error.items():
        print(f"{rounding}: products {100 * (wrong / all_) ** 0.5:.2f}%, kept alike {100 * sum(alike[rounding]) / len(prompts):.1f}%, KL {sum(divergence[rounding]) / len(prompts):.5f}")


main()
