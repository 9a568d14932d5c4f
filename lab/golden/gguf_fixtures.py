#!/usr/bin/env python3
"""Makes model/gguf/testdata: tiny random models of every architecture, converted to GGUF by
llama.cpp's own converter, and what transformers computes with the models before that.

    pip install torch transformers==4.57.6 safetensors gguf sentencepiece  # gemma4*: transformers==5.24.0
    python3 lab/golden/gguf_fixtures.py LLAMA_CPP model/gguf/testdata

LLAMA_CPP is a copy of llama.cpp's sources with convert_hf_to_gguf.py. Its table of known
tokenizers is passed over: these have 32 tokens. golden.json has two prompts of each, their ids and
the logits of the last row [32] of a float32 pass with the weights as stored.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB = 32
SHAPE = dict(
    vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, intermediate_size=16,
    max_position_embeddings=64, rope_theta=10000.0, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, pad_token_id=1,
)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
LONGROPE = dict(type="longrope", short_factor=[1.0, 1.25, 1.5], long_factor=[1.0, 2.5, 4.0])

GEMMA4 = dict(
    head_dim=8, global_head_dim=16, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1, sliding_window=8, pad_token_id=0, rope_parameters=dict(
        full_attention=dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1000000.0), sliding_attention=dict(rope_type="default", rope_theta=10000.0)))

# name: (config class, stored type, name of the pre-tokenizer, changes)
CASES = {
    "llama": ("LlamaConfig", "float16", "llama-bpe", dict(rope_theta=500000.0, rope_scaling=LLAMA3, head_dim=8, num_attention_heads=2, num_key_value_heads=1)),
    "llama-biases": ("LlamaConfig", "bfloat16", "gpt-2", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=False, rope_scaling=dict(rope_type="linear", factor=2.0))),
    "mistral3": ("MistralConfig", "float16", "tekken", dict(sliding_window=None, hidden_size=8, head_dim=8)),
    "ministral3": ("Ministral3Config", "float16", "tekken", dict(hidden_size=8, head_dim=8, rope_parameters=YARN | dict(
        rope_theta=1000000.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.4))),
    "qwen2": ("Qwen2Config", "bfloat16", "qwen2", dict(rope_scaling=YARN, max_position_embeddings=16)),
    "qwen3": ("Qwen3Config", "bfloat16", "qwen2", dict(num_key_value_heads=1, hidden_size=8, head_dim=8, tie_word_embeddings=False)),
    "seed_oss": ("SeedOssConfig", "float16", "seed-coder", dict(hidden_size=8, head_dim=8)),
    "phi3": ("Phi3Config", "float16", "gpt-4o", dict(
        num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.75, original_max_position_embeddings=16, rope_scaling=LONGROPE, sliding_window=8)),
    "granite": ("GraniteConfig", "float16", "refact", dict(embedding_multiplier=12.0, attention_multiplier=0.15, residual_multiplier=0.22, logits_scaling=8.0)),
    "smollm3": ("SmolLM3Config", "float16", "llama-bpe", dict(num_hidden_layers=4, hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1, no_rope_layer_interval=4)),
    "falcon": ("FalconConfig", "float16", "falcon", dict(num_kv_heads=1, multi_query=True, parallel_attn=True, bias=False, alibi=False, new_decoder_architecture=False)),
    "mixtral": ("MixtralConfig", "float16", "llama-bpe", dict(num_local_experts=4, num_experts_per_tok=2, hidden_size=8, head_dim=8, intermediate_size=8)),
    "qwen3moe": ("Qwen3MoeConfig", "bfloat16", "qwen2", dict(
        num_hidden_layers=2, hidden_size=8, head_dim=8, intermediate_size=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, norm_topk_prob=True)),
    "qwen2moe": ("Qwen2MoeConfig", "bfloat16", "qwen2", dict(
        hidden_size=8, intermediate_size=8, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=16)),
    "olmo2": ("Olmo2Config", "float16", "dbrx", dict(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1)),
    "olmo3": ("Olmo3Config", "float16", "dbrx", dict(
        hidden_size=8, intermediate_size=8, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2, sliding_window=8, layer_types=["sliding_attention", "full_attention"], rope_scaling=YARN)),
    "glm4": ("Glm4Config", "bfloat16", "glm4", dict(hidden_size=8, head_dim=8, intermediate_size=8)),
    "glm4moe": ("Glm4MoeConfig", "bfloat16", "glm4", dict(
        num_hidden_layers=2, hidden_size=8, head_dim=8, intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, n_shared_experts=1, use_qk_norm=True,
        routed_scaling_factor=1.5, attention_bias=True, num_nextn_predict_layers=0)),
    # Of bfloat16, which the converter widens before it adds 1 to norms.
    "gemma2": ("Gemma2Config", "bfloat16", "gpt-2", dict(
        hidden_size=16, head_dim=8, intermediate_size=8, num_hidden_layers=2, sliding_window=8, query_pre_attn_scalar=8, attn_logit_softcapping=3.0, final_logit_softcapping=2.0)),
    "gemma3": ("Gemma3TextConfig", "bfloat16", "gpt-2", dict(
        hidden_size=16, head_dim=8, intermediate_size=8, num_hidden_layers=6, num_attention_heads=2, num_key_value_heads=1, sliding_window=8, query_pre_attn_scalar=8)),
    # The last two layers read the keys and values of the first two.
    "gemma4": ("Gemma4TextConfig", "float16", "gpt-2", GEMMA4 | dict(
        num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2, use_double_wide_mlp=True,
        hidden_size_per_layer_input=4, vocab_size_per_layer_input=VOCAB, final_logit_softcapping=3.0)),
    "gemma4-moe": ("Gemma4TextConfig", "float16", "gpt-2", GEMMA4 | dict(
        num_hidden_layers=2, num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True, layer_types=["sliding_attention", "full_attention"], hidden_size_per_layer_input=0,
        enable_moe_block=True, num_experts=3, top_k_experts=2, moe_intermediate_size=8)),
    "gpt-oss": ("GptOssConfig", "bfloat16", "gpt-4o", dict(
        hidden_size=8, head_dim=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=2,
        sliding_window=8, tie_word_embeddings=False, rope_parameters=YARN | dict(rope_theta=150000.0, truncate=False, beta_fast=32.0, beta_slow=1.0))),
    "falcon-40b": ("FalconConfig", "float16", "falcon", dict(num_kv_heads=2, bias=False, alibi=False, new_decoder_architecture=True)),
}


TEXTS = [
    "The keys of a key-value cache are kept for every token of the prompt.", "  leading and   inner spaces ", "line\nbreaks\n\n and\ttabs", "naïve café, 12345 words: €5 – “quoted”",
    "漢字とかな 🙂 text", "<|user|>the prompt<|user|> and more", "a</s>b <s>c", "keys keys keys the the the token tokens", "▁ already marked", "",
]


def tokenizer(folder):
    special = ["<bos>", "<eos>"]
    letters = pre_tokenizers.ByteLevel.alphabet()
    vocab = special + sorted(letters)[: VOCAB - len(special) - 2]
    vocab += [vocab[2] + vocab[3], vocab[2] + vocab[3] + vocab[4]]
    merges = [(vocab[2], vocab[3]), (vocab[2] + vocab[3], vocab[4])]
    t = Tokenizer(models.BPE({v: i for i, v in enumerate(vocab)}, merges))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<bos>", eos_token="<eos>", unk_token="<eos>")
    fast.chat_template = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    fast.save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())  # which the converter reads
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": False}))


def model(name):
    kind, dtype, _, changes = CASES[name]
    shape = {**SHAPE, **changes}
    if kind.startswith("Gemma3"):
        shape["rope_parameters"] = dict(
            full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1000000.0), sliding_attention=dict(rope_type="default", rope_theta=shape.pop("rope_theta")))
    if "rope_parameters" in shape:
        shape.pop("rope_theta", None)
    config = getattr(transformers, kind)(**shape)
    if kind == "Phi3Config":
        config.max_position_embeddings = 64
    torch.manual_seed(sum(map(ord, name)))
    m = transformers.AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32)
    with torch.no_grad():
        for key, p in m.named_parameters():
            gemma = kind.startswith("Gemma") and kind != "Gemma4TextConfig"  # whose norms are stored less 1
            p.normal_(0.0 if gemma else 1.0 if key.endswith("norm.weight") or ".ln_" in key and key.endswith("weight") else 0.0, 0.1 if p.dim() == 1 else 0.25)
            p.copy_(p.to(getattr(torch, dtype)).float())
            if kind == "Gemma4TextConfig" and p.dim() == 1:
                p.copy_((p + (0 if key.endswith("norm.weight") else 1)).to(getattr(torch, dtype)).float())
        for key, p in m.named_buffers():
            if key.endswith("layer_scalar"):
                p.copy_((0.5 + torch.rand_like(p)).to(getattr(torch, dtype)).float())
            if key.endswith("e_score_correction_bias"):
                p.normal_(0, 0.1)
                p.copy_(p.to(getattr(torch, dtype)).float())
    return m.eval(), getattr(torch, dtype)


def convert(llama_cpp, folder, name, out, **options):
    sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]
    import conversion
    import gguf
    from conversion.base import ModelType, TextModel
    from conversion.llama import LlamaModel

    _, dtype, pre, _ = CASES[name]
    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    kind = conversion.get_model_class(conversion.get_model_architecture(conversion.ModelBase.load_hparams(folder, False), ModelType.TEXT))
    if name == "mistral3":  # the language model of Mistral Small 3, which is saved with one of images

        class Mistral3(LlamaModel):
            model_arch = gguf.MODEL_ARCH.MISTRAL3

        kind = Mistral3
    if name.startswith(("glm4", "gemma")):  # whose tokens of turns these tokenizers do not have
        kind.set_vocab = lambda self: self._set_vocab_gpt2()
    ftype = {"float32": gguf.LlamaFileType.ALL_F32, "float16": gguf.LlamaFileType.MOSTLY_F16, "bfloat16": gguf.LlamaFileType.MOSTLY_BF16}[dtype]
    with torch.inference_mode():
        kind(folder, ftype, out, model_name=name, **options).write()


def sentencepiece(llama_cpp, out):
    """A tokenizer of SentencePiece's, as a file without tensors but the embedding, and the ids that
    transformers gives texts."""
    import sentencepiece

    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp) / "spm"
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SHAPE, "vocab_size": 332, "hidden_size": 4, "num_attention_heads": 2, "intermediate_size": 4, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})).half().save_pretrained(folder)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS * 3), model_prefix=str(folder / "tokenizer"), vocab_size=330, model_type="bpe", byte_fallback=True,
            user_defined_symbols=["<|user|>"], normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True)
        (folder / "tokenizer.vocab").unlink()
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
            "added_tokens_decoder": {"3": {"content": "<|user|>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": False}}}))
        t = transformers.LlamaTokenizerFast.from_pretrained(folder)
        convert(llama_cpp, folder, "llama", out / "spm.gguf")
        rng = random.Random(1)  # where merges compete
        texts = TEXTS + ["".join(rng.choices("heknrida ", k=80)) for _ in range(6)]
        return [{"text": text, "ids": t(text).input_ids, "decoded": t.decode(t(text).input_ids)} for text in texts]


def first_mixtral(llama_cpp, out):
    """mixtral.gguf as converters of the first months wrote it, with a tensor for every expert."""
    sys.path[:0] = [str(llama_cpp / "gguf-py")]
    import gguf

    file = gguf.GGUFReader(out / "mixtral.gguf")
    writer = gguf.GGUFWriter(out / "mixtral-first.gguf", "llama")
    for key, field in file.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for t in file.tensors:
        if "_exps." not in t.name:
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
            continue
        for i, expert in enumerate(t.data):
            writer.add_tensor(t.name.replace("_exps.", f".{i}."), expert.copy(), raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    llama_cpp, out = Path(sys.argv[1]), Path(sys.argv[2])
    golden = {"transformers": transformers.__version__, "models": {}}
    for name in sys.argv[3:] or CASES:
        m, dtype = model(name)
        prompts = []
        for n in (12, 20):  # within the first training's context and beyond it
            ids = [(7 * i * i + 3 * i + n) % VOCAB for i in range(n)]
            with torch.no_grad():
                logits = m(torch.tensor([ids])).logits[0, -1].tolist()
            prompts.append({"ids": ids, "logits": [float(f"{x:.8g}") for x in logits]})
        with tempfile.TemporaryDirectory() as temp:
            folder = Path(temp) / name
            m.to(dtype).save_pretrained(folder)
            tokenizer(folder)
            if name.startswith("gemma4"):  # as published models have it
                config = json.loads((folder / "config.json").read_text())
                del config["per_layer_config"]
                (folder / "config.json").write_text(json.dumps(config | {k: CASES[name][3].get(k) for k in ("global_head_dim", "num_global_key_value_heads")}))
            convert(llama_cpp, folder, name, out / f"{name}.gguf")
            if name == "mixtral":
                first_mixtral(llama_cpp, out)
                golden["models"]["mixtral-first"] = prompts
            if name == "llama-biases":
                convert(llama_cpp, folder, name, out / "llama-fused.gguf", fuse_qkv=True)
        golden["models"][name] = prompts
    if sys.argv[3:]:  # the others stay
        old = json.loads((out / "golden.json").read_text())
        golden = old | {"models": old["models"] | golden["models"]}
    else:
        golden["sentencepiece"] = sentencepiece(llama_cpp, out)
    (out / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    total = sum(f.stat().st_size for f in out.glob("*.gguf") if f.stem != "blocks")  # which golden_gguf.py makes
    print(f"{total} bytes of GGUF files")
    assert total < 250_000


if __name__ == "__main__":
    main()
