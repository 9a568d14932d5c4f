#!/usr/bin/env python3
"""Makes a GGUF file of a model with random bfloat16 weights, for measurements of speed.

    pip install gguf numpy ml_dtypes
    python3 lab/golden/random_gguf.py SHAPE FILE.gguf

SHAPE is llama-1b, in the shape of Llama 3.2 1B, or qwen3moe-2, two layers of Qwen3-MoE as wide as that, with 32
experts of which a row takes 4. The vocabulary is one of bytes and made-up tokens.
"""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType

SHAPES = {
    "llama-1b": dict(arch="llama", layers=16, hidden=2048, heads=32, kv_heads=8, head=64, inner=8192, vocab=128256, tied=True),
    "qwen3moe-2": dict(arch="qwen3moe", layers=2, hidden=2048, heads=32, kv_heads=4, head=128, inner=6144, vocab=32000, tied=False, experts=32, used=4, expert_inner=768),
}


def bytes_to_letters():
    """GPT-2's letters of bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]


def main():
    name, out = sys.argv[1], Path(sys.argv[2])
    s = SHAPES[name]
    rng = np.random.default_rng(1)
    w = GGUFWriter(out.with_suffix(".new"), s["arch"])
    w.add_name(name)
    w.add_context_length(131072)
    w.add_embedding_length(s["hidden"])
    w.add_block_count(s["layers"])
    w.add_feed_forward_length(s["inner"])
    w.add_head_count(s["heads"])
    w.add_head_count_kv(s["kv_heads"])
    w.add_key_length(s["head"])
    w.add_value_length(s["head"])
    w.add_rope_dimension_count(s["head"])
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(s["vocab"])
    if "experts" in s:
        w.add_expert_count(s["experts"])
        w.add_expert_used_count(s["used"])
        w.add_expert_feed_forward_length(s["expert_inner"])
    letters = bytes_to_letters()
    merges = [f"{a} {b}" for a in letters for b in letters][:1024]
    tokens = letters + [m.replace(" ", "") for m in merges]
    tokens += [f"<|unused_{i}|>" for i in range(s["vocab"] - len(tokens) - 1)] + ["<|end|>"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([TokenType.CONTROL if t.startswith("<|") else TokenType.NORMAL for t in tokens])
    w.add_token_merges(merges)
    w.add_eos_token_id(s["vocab"] - 1)
    w.add_bos_token_id(s["vocab"] - 1)

    def random(name, *shape):
        x = (rng.standard_normal(shape, dtype=np.float32) * shape[-1] ** -0.5).astype(ml_dtypes.bfloat16)
        w.add_tensor(name, x.view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)

    def ones(name, n):
        w.add_tensor(name, np.ones(n, np.float32))

    q, kv = s["heads"] * s["head"], s["kv_heads"] * s["head"]
    random("token_embd.weight", s["vocab"], s["hidden"])
    for l in range(s["layers"]):
        at = f"blk.{l}."
        ones(at + "attn_norm.weight", s["hidden"])
        ones(at + "ffn_norm.weight", s["hidden"])
        random(at + "attn_q.weight", q, s["hidden"])
        random(at + "attn_k.weight", kv, s["hidden"])
        random(at + "attn_v.weight", kv, s["hidden"])
        random(at + "attn_output.weight", s["hidden"], q)
        if "experts" not in s:
            random(at + "ffn_gate.weight", s["inner"], s["hidden"])
            random(at + "ffn_up.weight", s["inner"], s["hidden"])
            random(at + "ffn_down.weight", s["hidden"], s["inner"])
            continue
        ones(at + "attn_q_norm.weight", s["head"])
        ones(at + "attn_k_norm.weight", s["head"])
        w.add_tensor(at + "ffn_gate_inp.weight", rng.standard_normal((s["experts"], s["hidden"]), dtype=np.float32) * s["hidden"] ** -0.5)
        random(at + "ffn_gate_exps.weight", s["experts"], s["expert_inner"], s["hidden"])
        random(at + "ffn_up_exps.weight", s["experts"], s["expert_inner"], s["hidden"])
        random(at + "ffn_down_exps.weight", s["experts"], s["hidden"], s["expert_inner"])
    ones("output_norm.weight", s["hidden"])
    if not s["tied"]:
        random("output.weight", s["vocab"], s["hidden"])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    out.with_suffix(".new").rename(out)


if __name__ == "__main__":
    main()
