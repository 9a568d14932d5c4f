#!/usr/bin/env python3
"""Makes model/testdata/configs.json: what transformers reads out of config.json
files that leave keys out, say null, or use other names.

    pip install torch==2.8.0 transformers==4.57.6
    python3 lab/golden/golden_configs.py [model/testdata/configs.json]

Every case is a config.json and what AutoModelForCausalLM makes of it, without memory
for its weights: the class, the sizes, the first and the end token, and the sliding window of every
layer, 0 for none.
"""

import json
import sys

import torch
import transformers

TINY = dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=96, vocab_size=256)
QWENS = ["qwen2", "qwen3"]
CASES = {}


def case(name, model_type, **keys):
    CASES[f"{model_type}: {name}"] = dict(model_type=model_type) | keys


for family in ["llama", "mistral", "falcon", *QWENS]:
    case("nothing given", family)
for family in ["llama", "mistral", *QWENS]:
    case("sizes alone", family, **TINY | dict(num_attention_heads=32))
    case("swish", family, **TINY, num_key_value_heads=4, hidden_act="swish")
    case("null key-value heads", family, **TINY, num_key_value_heads=None)
    case("key-value heads", family, **TINY, num_key_value_heads=2)
case("gelu by its other name", "falcon", **{k: v for k, v in TINY.items() if k != "intermediate_size"}, activation="gelu_python")
for family in QWENS:
    on = TINY | dict(use_sliding_window=True, num_key_value_heads=2)
    case("window null", family, **on, sliding_window=None, max_window_layers=1)
    case("window null from the first layer", family, **on, sliding_window=None, max_window_layers=0)
    case("window not given", family, **on, max_window_layers=1)
    case("window", family, **on, sliding_window=12, max_window_layers=1)
    case("window of no layer", family, **on, sliding_window=12)
    case("window of later layers", family, **on, sliding_window=12, max_window_layers=9)
    case("window off", family, **TINY, num_key_value_heads=2, sliding_window=12, max_window_layers=0)
    case("window switched off", family, **on | dict(use_sliding_window=False), sliding_window=12, max_window_layers=0)
    case("window by layer", family, **on, sliding_window=12, max_window_layers=0, layer_types=["full_attention", "sliding_attention"] * 2)
    case("window null by layer", family, **on, sliding_window=None, layer_types=["full_attention"] * 4)
MISTRAL = TINY | dict(num_key_value_heads=2)
case("window null", "mistral", **MISTRAL, sliding_window=None)
case("window", "mistral", **MISTRAL, sliding_window=12)
case("window by layer", "mistral", **MISTRAL, head_dim=16, sliding_window=12, layer_types=["full_attention", "sliding_attention"] * 2)
case("no window by layer", "mistral", **MISTRAL, head_dim=16, sliding_window=None, layer_types=["full_attention"] * 4)
case("a window that it does not have", "llama", **TINY, sliding_window=12)
# Those that came later; transformers refuses a padding token beyond the vocabulary.
PADDED = TINY | dict(pad_token_id=0)
LATER = ["phi3", "granite", "smollm3", "seed_oss", "ministral"]
for family in LATER:
    own = dict(head_dim=32) if family == "ministral" else {}  # which transformers 4.57 does not run without
    size = PADDED | dict(hidden_size=128, num_key_value_heads=2) | own
    case("nothing given", family, **own)
    case("sizes alone", family, **PADDED | own | (dict(num_key_value_heads=2) if family in ("smollm3", "seed_oss", "ministral") else {}))
    case("swish", family, **size, hidden_act="swish", rms_norm_eps=1e-4, max_position_embeddings=512, rope_theta=5000.0)
    case("null key-value heads", family, **size | dict(num_key_value_heads=None))
    case("tied the other way", family, **size, tie_word_embeddings=family != "smollm3")
LATE = PADDED | dict(num_key_value_heads=2)
case("window", "phi3", **LATE, sliding_window=12)
case("window null", "phi3", **LATE, sliding_window=None)
case("part of a head", "phi3", **LATE, partial_rotary_factor=0.5)
case("multipliers", "granite", **LATE, embedding_multiplier=12.0, attention_multiplier=0.25, residual_multiplier=0.5, logits_scaling=8.0)
case("some multipliers", "granite", **LATE, embedding_multiplier=12.0)
case("layers without rotation", "smollm3", **LATE, no_rope_layers=[1, 0, 0, 1])
case("every second layer without rotation", "smollm3", **LATE, no_rope_layer_interval=2)
case("window", "smollm3", **LATE, use_sliding_window=True, sliding_window=12)
case("window off", "smollm3", **LATE, sliding_window=12)
case("window null", "smollm3", **LATE, use_sliding_window=True)
case("biases", "smollm3", **LATE, attention_bias=True, mlp_bias=True)
case("heads of another width", "seed_oss", **LATE, head_dim=16)
case("other biases", "seed_oss", **LATE, attention_bias=False, attention_out_bias=True, mlp_bias=True)
case("window null", "ministral", **LATE, head_dim=16, sliding_window=None)
case("window by layer", "ministral", **LATE, head_dim=32, sliding_window=12, layer_types=["full_attention", "sliding_attention"] * 2)
# Experts, and norms after blocks.
EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32)
for family in ["mixtral", "qwen3_moe", "qwen2_moe", "olmo2", "olmo3", "glm4"]:
    case("nothing given", family)
    case("sizes alone", family, **PADDED, num_key_value_heads=2)
    case("swish", family, **LATE, hidden_act="swish", rms_norm_eps=1e-4, max_position_embeddings=512, rope_theta=5000.0, tie_word_embeddings=True)
case("experts", "mixtral", **LATE, num_local_experts=4, num_experts_per_tok=1, sliding_window=12)
case("experts", "qwen3_moe", **LATE, **EXPERTS, head_dim=32, attention_bias=True)
case("every second layer", "qwen3_moe", **LATE, **EXPERTS, decoder_sparse_step=2, mlp_only_layers=[1])
case("window", "qwen3_moe", **LATE, **EXPERTS, use_sliding_window=True, sliding_window=12)
case("window off", "qwen3_moe", **LATE, **EXPERTS, sliding_window=12)
case("experts", "qwen2_moe", **LATE, **EXPERTS, shared_expert_intermediate_size=48, mlp_only_layers=[0, 3])
case("biases", "qwen2_moe", **LATE, **EXPERTS, qkv_bias=False)
case("biases", "olmo2", **LATE, attention_bias=True)
case("null key-value heads", "olmo2", **PADDED, num_key_value_heads=None)
case("window by layer", "olmo3", **LATE, sliding_window=12, layer_types=["full_attention", "sliding_attention"] * 2)
case("half of a head", "glm4", **LATE, head_dim=32, attention_bias=False)
GLM = LATE | dict(head_dim=32, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32)
case("experts", "glm4_moe", **GLM)
case("dense layers, shared experts", "glm4_moe", **GLM, first_k_dense_replace=3, n_shared_experts=2, use_qk_norm=True, attention_bias=True)
FALCON = {k: v for k, v in TINY.items() if k != "intermediate_size"}
NEW = FALCON | dict(new_decoder_architecture=True)
case("new decoder, nothing given", "falcon", new_decoder_architecture=True, num_attention_heads=64, hidden_size=4096)
case("new decoder, sizes alone", "falcon", **NEW)
case("new decoder, key-value heads", "falcon", **NEW, num_kv_heads=2)
case("new decoder, null key-value heads", "falcon", **NEW, num_kv_heads=None, multi_query=False)
case("new decoder, one norm", "falcon", **NEW, num_kv_heads=2, num_ln_in_parallel_attn=1)
case("new decoder, two norms", "falcon", **NEW, num_kv_heads=2, num_ln_in_parallel_attn=2, ffn_hidden_size=96, bias=True)
case("key-value heads that it does not have", "falcon", **FALCON, num_kv_heads=2)
case("biases", "falcon", **FALCON, bias=True, tie_word_embeddings=False)
for family, size in [("llama", TINY), ("smollm3", LATE), ("falcon", FALCON), ("qwen2", LATE), ("seed_oss", LATE)]:
    case("tied embeddings null", family, **size, tie_word_embeddings=None)
    case("tokens null", family, **size, bos_token_id=None, eos_token_id=None)
    case("tokens", family, **size, bos_token_id=5, eos_token_id=[6, 7])
case("biases null", "seed_oss", **LATE, attention_bias=None, attention_out_bias=None, mlp_bias=None)
case("biases null", "falcon", **FALCON, bias=None, new_decoder_architecture=None)
case("hidden size by its first name", "falcon", num_hidden_layers=2, num_attention_heads=4, vocab_size=256, n_embed=64)


def read(keys):
    keys = dict(keys)
    if keys["model_type"] == "mistral" and "layer_types" in keys:  # as AutoConfig does it for folders
        keys["model_type"] = "ministral"
    config = transformers.AutoConfig.for_model(**keys)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    layers = model.model.layers if hasattr(model, "model") else model.transformer.h
    windows = []
    for layer in layers:
        attention = getattr(layer, "self_attn", None)
        # Mistral and Phi-3 have one window for all layers, others one of each.
        window = getattr(attention, "sliding_window", config.sliding_window if config.model_type in ("mistral", "mixtral", "phi3") else None)
        windows.append(window or 0)
    attention = layers[0].self_attn if hasattr(layers[0], "self_attn") else layers[0].self_attention
    falcon = config.model_type == "falcon"
    kv = config.num_key_value_heads if not falcon else config.num_kv_heads if config.new_decoder_architecture else 1
    multipliers = [getattr(config, k + "_multiplier", 1.0) for k in ("embedding", "attention", "residual")] if config.model_type == "granite" else None
    return dict(
        architecture=type(model).__name__,
        hidden=config.hidden_size, layers=config.num_hidden_layers, heads=config.num_attention_heads, kv_heads=kv,
        head_dim=attention.head_dim, intermediate=config.ffn_hidden_size if falcon else config.intermediate_size,
        vocab=config.vocab_size, max_positions=config.max_position_embeddings,
        eps=config.layer_norm_epsilon if falcon else config.rms_norm_eps,
        theta=config.rope_theta, tied=bool(config.tie_word_embeddings), windows=windows,
        bos=config.bos_token_id, eos=config.eos_token_id,
        rotary=int(attention.head_dim * getattr(config, "partial_rotary_factor", 1.0)),
        without_rotation=[l for l, on in enumerate(getattr(config, "no_rope_layers", [])) if not on],
        granite=multipliers and multipliers + [config.logits_scaling],
        # Of tied weights one, as a file has them.
        parameters=sum(p.numel() for p in model.parameters()) + sum(b.numel() for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")),
    )


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "model/testdata/configs.json"
    out = dict(transformers=transformers.__version__, cases=[])
    for name, config in CASES.items():
        out["cases"].append(dict(name=name, config=config, want=read(config)))
    with open(path, "w") as f:
        lines = ",\n".join("  " + json.dumps(c) for c in out["cases"])
        f.write(f'{{"transformers": "{out["transformers"]}", "cases": [\n{lines}\n]}}\n')
    print(f"{len(CASES)} cases")


if __name__ == "__main__":
    main()
