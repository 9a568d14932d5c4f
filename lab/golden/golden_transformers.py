#!/usr/bin/env python3
"""Makes model/testdata/golden: tiny random models of every family and RoPE
scaling type, saved as Hugging Face folders, and what transformers computes with
them.

    pip install torch==2.8.0 transformers==4.57.1 safetensors==0.8.0 numpy  # gemma*, gpt-oss, lfm2, ministral3, mistral-window, qwen3-next, qwen3.5*: torch==2.15.0 transformers==5.24.0
    python3 lab/golden/golden_transformers.py [model/testdata/golden] [name ...]

Every folder holds a model, a tokenizer and

  golden.json         library versions, prompts (text and token ids), 16 greedily
                      generated tokens and their text, and transformers' own error
                      in bfloat16
  golden.safetensors  per prompt i, float32, from a float32 forward pass with the
                      weights as stored:
                      i.logits [8, vocab] of the last 8 rows; those of the others follow
                      from i.hidden and the head, which the reader multiplies
                      i.hidden [layers+1, tokens, hidden]: the embeddings, then the
                      output of every layer, the last one after the final norm
                      i.attention [layers, heads, 8, tokens]: probabilities of the
                      last 8 rows, in layers that attend

Weights are drawn so that attention is peaked and no two best logits are close.
The error of bfloat16 is that of the same model converted to bfloat16, weights and
activations: the largest |difference| of a row of logits over the largest |logit|
of the row, worst row.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB, LAST_ROWS, GREEDY, SHORT, LONG = 256, 8, 16, 20, 72
BOS, EOS = 254, 255
SHAPE = dict(
    vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=96, max_position_embeddings=256, rope_theta=10000.0, tie_word_embeddings=False,
    bos_token_id=BOS, eos_token_id=EOS,
)
# The original context is shorter than the long prompt.
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
GEMMA = dict(head_dim=24, intermediate_size=64, sliding_window=16, query_pre_attn_scalar=20, tie_word_embeddings=True, pad_token_id=EOS)
SMALL = dict(hidden_size=48, head_dim=16, intermediate_size=64)
TINY = dict(hidden_size=32, head_dim=16, intermediate_size=32, tie_word_embeddings=True)
GEMMA4 = TINY | dict(
    hidden_size=36, head_dim=8, global_head_dim=16, num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=16,
    final_logit_softcapping=6.0, pad_token_id=EOS, rope_parameters=dict(
        full_attention=dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1000000.0), sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
# Factors of both tables are roots that every type has.
GEMMA4_SMALL = GEMMA4 | dict(hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, sliding_window=8)
# Of three families together as large as one of the others.
DELTA = dict(
    hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=16, tie_word_embeddings=True, partial_rotary_factor=0.5,
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=4, linear_value_head_dim=6, linear_conv_kernel_dim=4)
DELTA_MOE = dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=8)


def longrope(pairs):
    """Phi's scaling. The short prompt and its answer stay within the original context of 48."""
    factors = lambda most: [round(1 + most * (i / (pairs - 1)) ** 2, 3) for i in range(pairs)]
    return dict(original_max_position_embeddings=48, rope_scaling=dict(type="longrope", short_factor=factors(0.5), long_factor=factors(5)))



# name: (config class, stored type, changes)
CASES = {
    # Multi-head, sharded, float32.
    "llama2": ("LlamaConfig", "float32", dict(num_key_value_heads=4)),
    "llama3.1": ("LlamaConfig", "bfloat16", dict(rope_theta=500000.0, rope_scaling=LLAMA3, num_hidden_layers=3)),
    "llama3.2-tied": ("LlamaConfig", "float16", dict(rope_theta=500000.0, rope_scaling=LLAMA3, tie_word_embeddings=True)),
    "llama-biases": ("LlamaConfig", "float16", TINY | dict(attention_bias=True, mlp_bias=True, head_dim=24, tie_word_embeddings=False)),
    "codellama-mqa": ("LlamaConfig", "float16", TINY | dict(rope_theta=1000000.0, num_key_value_heads=1)),
    "longchat": ("LlamaConfig", "float16", TINY | dict(rope_scaling=dict(rope_type="linear", factor=4.0))),
    "mistral-v0.3": ("MistralConfig", "float16", dict(rope_theta=1000000.0, sliding_window=None)),
    "mistral-window": ("MistralConfig", "float16", dict(sliding_window=16)),
    "qwen2": ("Qwen2Config", "float16", dict(rope_theta=1000000.0, tie_word_embeddings=True)),
    "qwen2-yarn": ("Qwen2Config", "float16", TINY | dict(rope_theta=1000000.0, rope_scaling=YARN, max_position_embeddings=32)),
    "qwen2-window": ("Qwen2Config", "float16", TINY | dict(use_sliding_window=True, sliding_window=12, max_window_layers=1)),
    "qwen3": ("Qwen3Config", "float16", dict(rope_theta=1000000.0, head_dim=32, tie_word_embeddings=True)),
    "falcon": ("FalconConfig", "float16", dict(
        tie_word_embeddings=True, multi_query=True, parallel_attn=True, bias=False, alibi=False, new_decoder_architecture=False)),
    "falcon-40b": ("FalconConfig", "float16", dict(
        hidden_size=48, num_kv_heads=2, ffn_hidden_size=64, bias=False, alibi=False, new_decoder_architecture=True, tie_word_embeddings=True)),
    "falcon2-11b": ("FalconConfig", "float16", dict(
        hidden_size=48, num_kv_heads=2, ffn_hidden_size=64, bias=True, alibi=False, new_decoder_architecture=True, num_ln_in_parallel_attn=1)),
    "ministral": ("MinistralConfig", "float16", SMALL | dict(sliding_window=16, layer_types=["sliding_attention", "full_attention"])),
    # Queries of the long prompt have three scales.
    "ministral3": ("Ministral3Config", "float16", TINY | dict(
        rope_parameters=YARN | dict(rope_theta=1000000.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.4))),
    "seed-oss": ("SeedOssConfig", "float16", SMALL | dict(num_attention_heads=2, num_key_value_heads=1)),
    "phi3.5": ("Phi3Config", "float16", SMALL | longrope(6) | dict(num_key_value_heads=4, sliding_window=24, pad_token_id=EOS)),
    "phi4-mini": ("Phi3Config", "float16", SMALL | longrope(6) | dict(
        hidden_size=64, partial_rotary_factor=0.75, tie_word_embeddings=True, pad_token_id=EOS)),
    "granite": ("GraniteConfig", "float16", SMALL | dict(
        embedding_multiplier=12.0, attention_multiplier=0.15, residual_multiplier=0.22, logits_scaling=8.0, tie_word_embeddings=True)),
    # Roots of the width that every type has: the factor of embeddings is rounded to it.
    "gemma2": ("Gemma2Config", "float16", GEMMA | dict(attn_logit_softcapping=4.0, final_logit_softcapping=6.0)),
    "gemma3": ("Gemma3TextConfig", "float16", GEMMA | dict(
        num_hidden_layers=3, layer_types=["sliding_attention", "sliding_attention", "full_attention"], rope_parameters=dict(
            full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1000000.0), sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    "gemma4": ("Gemma4TextConfig", "float16", GEMMA4 | dict(
        num_hidden_layers=3, hidden_size_per_layer_input=0, layer_types=["sliding_attention", "full_attention", "full_attention"])),
    "gemma4-unified": ("Gemma4UnifiedTextConfig", "float16", GEMMA4 | dict(layer_types=["sliding_attention", "full_attention"])),
    # Layers 3 and 5 read the keys and values of layer 1, and layer 4 those of layer 2, whose turn is over first.
    "gemma4-e2b": ("Gemma4TextConfig", "float16", GEMMA4_SMALL | dict(
        num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3, num_kv_shared_layers=3, use_double_wide_mlp=True, attention_k_eq_v=False,
        num_global_key_value_heads=None, hidden_size_per_layer_input=9, vocab_size_per_layer_input=VOCAB)),
    "gemma4-moe": ("Gemma4TextConfig", "float16", GEMMA4_SMALL | dict(
        hidden_size_per_layer_input=0, layer_types=["sliding_attention", "full_attention"], enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=8)),
    "gpt-oss": ("GptOssConfig", "float16", TINY | dict(
        num_local_experts=4, num_experts_per_tok=2, intermediate_size=24, sliding_window=16, tie_word_embeddings=False,
        rope_parameters=YARN | dict(rope_theta=150000.0, truncate=False, beta_fast=32.0, beta_slow=1.0))),
    "qwen3-next": ("Qwen3NextConfig", "float16", DELTA | DELTA_MOE | dict(
        num_hidden_layers=4, layer_types=["full_attention", "linear_attention"] * 2, mlp_only_layers=[1, 2], attention_bias=True)),
    "qwen3.5": ("Qwen3_5TextConfig", "float16", DELTA | dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])),
    "qwen3.5-moe": ("Qwen3_5MoeTextConfig", "float16", DELTA | DELTA_MOE | dict(num_hidden_layers=2, full_attention_interval=2)),
    "lfm2": ("Lfm2Config", "float16", dict(
        hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"],
        block_auto_adjust_ff_dim=False, tie_word_embeddings=True, pad_token_id=EOS)),
    "smollm3": ("SmolLM3Config", "float16", SMALL | dict(
        num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, no_rope_layer_interval=2, tie_word_embeddings=True, pad_token_id=EOS)),
    "mixtral": ("MixtralConfig", "float16", TINY | dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=24)),
    "qwen3-moe": ("Qwen3MoeConfig", "float16", TINY | dict(
        num_hidden_layers=3, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16, norm_topk_prob=True, mlp_only_layers=[1])),
    "qwen2-moe": ("Qwen2MoeConfig", "float16", TINY | dict(
        head_dim=8, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=32, norm_topk_prob=False)),
    "olmo2": ("Olmo2Config", "float16", SMALL | dict(pad_token_id=EOS)),
    "olmo3": ("Olmo3Config", "float16", SMALL | dict(
        num_hidden_layers=3, sliding_window=16, layer_types=["sliding_attention", "sliding_attention", "full_attention"], rope_scaling=YARN, pad_token_id=EOS)),
    "glm4": ("Glm4Config", "float16", SMALL | dict(partial_rotary_factor=0.5, pad_token_id=EOS)),
    "glm4-moe": ("Glm4MoeConfig", "float16", TINY | dict(
        partial_rotary_factor=0.5, attention_bias=True, use_qk_norm=True, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
        n_shared_experts=1, n_group=2, topk_group=1, routed_scaling_factor=1.5, first_k_dense_replace=1, num_hidden_layers=3, pad_token_id=EOS)),
}

TEXT = """The river was higher than anyone in the town could remember. On the third day
of rain the old ferry broke loose, and nobody saw where it went; some said that it had reached the
sea, others that it lay in the reeds below the mill with the miller's cat asleep in it. """


def draw_weights(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("sinks"):
                p.copy_(1.0 + noise)
            elif name.endswith("A_log"):  # some heads remember and some forget
                p.copy_(noise - 2.0)
            elif "linear_attn.norm" in name:
                p.copy_(1.0 + 0.2 * noise)
            elif name.endswith("bias"):
                p.copy_(0.3 * noise)
            elif p.dim() == 1:
                stored = 1.0 if model.config.model_type .startswith(("gemma2", "gemma3", "qwen3_next", "qwen3_5")) else 0.0  # less than what multiplies
                # The scale of Gemma 4 is 1. Deep and narrow, it would amplify every rounding.
                query = 1.5 if not model.config.model_type.startswith("gemma4") else 0.8 if model.config.hidden_size > 16 else 0.4
                p.copy_((query if "q_norm" in name or "q_layernorm" in name else 1.0) - stored + 0.2 * min(query, 1) * noise)
            elif "embed_tokens_per_layer" in name:
                p.copy_(noise)
            elif "embed" in name:
                # Small beside what Falcon's parallel blocks add, or Granite's, whose multipliers
                # are on both, or the tied head repeats the input.
                small = getattr(model.config, "residual_multiplier", 0) / 40 or (
                    0.03 if model.config.model_type.startswith("gemma") else 0)
                p.copy_((0.15 if "word_embeddings" in name else small or 0.5) * noise)
            else:
                gain = 1.5 if any(part in name for part in ("q_proj", "k_proj", "qkv_proj", "query_key_value")) else 1.2
                p.copy_(gain * p.shape[1] ** -0.5 * noise)
        for name, p in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                p.copy_(0.1 * torch.randn(p.shape, generator=generator))
            elif name.endswith("layer_scalar"):
                p.copy_(0.5 + torch.rand(p.shape, generator=generator))


def make_tokenizer():
    """Byte-level BPE of exactly VOCAB tokens for printable ASCII."""
    byte = {chr(b): chr(b) for b in range(33, 127)} | {" ": "Ġ", "\n": "Ċ"}
    vocab = sorted(byte.values())
    pairs = [(a, b) for a in "ehtaonis" for b in "etaoinshrdlucmfwypvg"]
    merges = [("Ġ", c) for c in "taowsihbcmfpldr"] + pairs
    merges = merges[: VOCAB - 2 - len(vocab)]
    vocab += [a + b for a, b in merges]
    assert len(vocab) == BOS, len(vocab)
    t = Tokenizer(models.BPE(vocab={v: i for i, v in enumerate(vocab)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|bos|>", "<|end|>"])
    assert t.get_vocab_size() == VOCAB
    return t


def row_error(got, want):
    difference = (got - want).abs().amax(-1) / want.abs().amax(-1)
    return difference.max().item()


def forward(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), output_hidden_states=True, output_attentions=True, use_cache=False)


def greedy(model, ids):
    """16 tokens and the smallest lead of a best logit over the second, relative to
    the largest."""
    out, lead = [], float("inf")
    for _ in range(GREEDY):
        logits = forward(model, ids + out).logits[0, -1]
        best = logits.topk(2)
        lead = min(lead, ((best.values[0] - best.values[1]) / logits.abs().max()).item())
        out.append(int(best.indices[0]))
    return out, lead


def build(root, name, tokenizer):
    config_class, stored, changes = CASES[name]
    shape = SHAPE | changes
    if config_class == "FalconConfig":  # multi-query; the MLP is four times as wide as the rest
        del shape["num_key_value_heads"], shape["intermediate_size"]
    if "rope_parameters" in shape:
        del shape["rope_theta"]
    if config_class == "Phi3Config":
        del shape["head_dim"]
    config = getattr(transformers, config_class)(**shape)
    config.architectures = [config_class.removesuffix("Config").removesuffix("Text") + "ForCausalLM"]
    text = " ".join((TEXT * 3).split())
    ids = tokenizer.encode(text).ids
    short, long, last = (7, 24, 2) if shape["hidden_size"] < 32 else (SHORT, LONG, LAST_ROWS)
    prompts = [ids[60 : 60 + short], ids[:long]]
    # No end token in the answers, no close decisions and no token over and over.
    for seed in range(100):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        draw_weights(model, seed)
        model = model.to(getattr(torch, stored)).eval()
        exact = model.float()
        answers = [greedy(exact, p) for p in prompts]
        if all(lead > 2e-3 and len({EOS, BOS, *tokens}) >= 7 and not {EOS, BOS} & set(tokens) for tokens, lead in answers):
            break
    else:
        raise SystemExit(f"{name}: no seed gives clear answers")

    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    exact.to(getattr(torch, stored)).save_pretrained(folder, max_shard_size="200KB" if name == "llama2" else "5GB")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<|bos|>", "eos_token": "<|end|>", "tokenizer_class": "PreTrainedTokenizerFast"}) + "\n")

    load = lambda dtype: transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    exact, rough = load(torch.float32), load(torch.bfloat16)
    tensors, entries = {}, []
    for i, (prompt, (tokens, lead)) in enumerate(zip(prompts, answers)):
        assert tokens == greedy(exact, prompt)[0]
        out, low = forward(exact, prompt), forward(rough, prompt)
        tensors[f"{i}.logits"] = out.logits[0, -last:].numpy()
        tensors[f"{i}.hidden"] = torch.cat(out.hidden_states).numpy()
        tensors[f"{i}.attention"] = torch.cat(out.attentions)[:, :, -last:].contiguous().numpy()
        entries.append({
            "text": tokenizer.decode(prompt), "ids": prompt, "greedy": tokens, "greedy_text": tokenizer.decode(tokens),
            "bf16_error": row_error(low.logits[0].float(), out.logits[0])})
        assert tokenizer.encode(entries[-1]["text"]).ids == prompt
        print(f"{name:16} seed {seed:2} {len(prompt):3} tokens: lead {lead:.2g}, bf16 error {entries[-1]['bf16_error']:.2g}, "
              f"attention peak {out.attentions[-1][0, :, -1].max().item():.2f}, {entries[-1]['greedy_text']!r}")
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / "golden.safetensors")
    (folder / "golden.json").write_text(json.dumps({
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, tokenizers, np)},
        "seed": seed, "prompts": entries}) + "\n")
    for f in folder.iterdir():
        f.chmod(0o644)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "model/testdata/golden")
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    for name in sys.argv[2:] or CASES:
        build(root, name, tokenizer)
    total = sum(f.stat().st_size for f in root.rglob("*") if f.is_file())
    print(f"{total / 1e6:.2f} MB")
    assert total < 9.5e6


if __name__ == "__main__":
    main()
