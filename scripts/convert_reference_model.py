#!/usr/bin/env python3
"""Write the built-in reference model as a Hugging Face folder.

    python3 scripts/convert_reference_model.py WEIGHTS.npz CONFIG.json [FOLDER]

WEIGHTS.npz holds float32 arrays under the short names of the training script
(emb, head, norm, and per layer 0_q, 0_k, 0_v, 0_o, 0_g, 0_u, 0_w, 0_n1, 0_n2),
CONFIG.json the sizes. The words of the tokenizer come from
datasets/vocabulary.txt, which the example generator reads too. The same input
gives the same bytes. Needs numpy only.
"""

import json
import os
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# The model was trained on prompts of up to 512 tokens plus their answers; the
# rest of the positions is room to run it, not a claim that it works there.
MAX_POSITIONS = 1024

# Ids of the words that only the chat template writes. They are special: left
# out when a reply is shown. The other template words, marks included, are part
# of questions and answers, so they are ordinary words.
SPECIAL = ["<pad>", "<bos>", "<eot>", "<user>", "<header>", "<assistant>", "<newline>"]

LAYER_TENSORS = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "g": "mlp.gate_proj",
    "u": "mlp.up_proj",
    "w": "mlp.down_proj",
    "n1": "input_layernorm",
    "n2": "post_attention_layernorm",
}

CHAT_TEMPLATE = (
    "{{ '<bos>' }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}"
    "{{ ' <user> ' + message['content'] + ' <eot>' }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ ' <header> <assistant> <newline> ' + message['content'] + ' <eot>' }}"
    "{% else %}"
    "{{ raise_exception('the reference model knows the roles user and assistant only') }}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ ' <header> <assistant> <newline>' }}{% endif %}"
)

README = """\
# The built-in reference model

A Llama-architecture model of 787,584 parameters (4 layers, hidden size 128,
4 query and 2 KV heads of 32) with a vocabulary of 384 words, trained from
scratch on the synthetic long-context tasks of package `datasets`. It exists so
that every command works, and means something, on a machine without any other
model: its answers are right with the full cache and go wrong when an eviction
policy drops what they need.

- It was trained on prompts of at most 512 tokens, followed by their answers.
  `max_position_embeddings` is 1024 so that longer prompts run; they are not
  answered well. Quality is only claimed up to about 530 positions.
- Right answers with the full cache at 512 tokens, 64 test examples a task:
  `single`, `ask1`, `chain`, `copy`, `q_single` 100%, `q_copy` 95%, `ask4` 92%,
  `q_marks` 88%, `marks` 77%; mean 94.6%. `python3
  scripts/check_reference_model.py 64` prints these numbers, from a numpy forward
  pass over the weights in this folder. `q_chain`, right in 4 of 20, is no default
  task.
- The tokenizer splits at white space; a word outside the vocabulary is an error,
  because there is no token for unknown words.

The folder is written by `scripts/convert_reference_model.py`, with the words of
`datasets/vocabulary.txt`; do not edit it by hand.
"""


def fail(message):
    sys.exit(f"convert_reference_model: {message}")


def bf16(array):
    """Round float32 to bfloat16, nearest even; returns the upper halves as uint16."""
    if not np.isfinite(array).all():
        fail("weights hold NaN or infinity")
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def hugging_face_names(config):
    """Yield (short name, Hugging Face name, shape) of every tensor."""
    d, heads, kv, ff = config["d"], config["nh"] * config["dh"], config["nkv"] * config["dh"], config["ff"]
    yield "emb", "model.embed_tokens.weight", (config["vocab"], d)
    yield "head", "lm_head.weight", (config["vocab"], d)
    yield "norm", "model.norm.weight", (d,)
    shapes = {
        "q": (heads, d), "k": (kv, d), "v": (kv, d), "o": (d, heads),
        "g": (ff, d), "u": (ff, d), "w": (d, ff), "n1": (d,), "n2": (d,),
    }
    for layer in range(config["nl"]):
        for short, name in LAYER_TENSORS.items():
            yield f"{layer}_{short}", f"model.layers.{layer}.{name}.weight", shapes[short]


def safetensors(tensors):
    """Serialise {name: uint16 array} as bfloat16, ordered by name."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        size = tensors[name].nbytes
        header[name] = {
            "dtype": "BF16",
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(tensors[n].tobytes() for n in sorted(tensors))


def dump(value):
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def write(folder, name, data):
    """Write one file under a temporary name, sync it, rename it."""
    path = os.path.join(folder, name)
    with open(path + ".tmp", "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)


def write_folder(folder, weights, config, words, positions, readme):
    """Write a model folder. weights maps short names to float32 arrays; config holds the
    sizes; positions is how many the model has."""
    if len(words) != config["vocab"] or len(set(words)) != len(words):
        fail(f"vocabulary: {len(set(words))} different words, want {config['vocab']}")
    if words[: len(SPECIAL)] != SPECIAL:
        fail(f"vocabulary begins with {words[:len(SPECIAL)]}, want {SPECIAL}")
    if config["tied"]:
        fail("config: got tied embeddings, want a head of its own")

    tensors, unread = {}, set(weights)
    for short, name, shape in hugging_face_names(config):
        if short not in unread:
            fail(f"weights: {short} is missing")
        unread.remove(short)
        if weights[short].shape != shape:
            fail(f"weights: {short}: shape {weights[short].shape}, want {shape}")
        tensors[name] = bf16(weights[short])
    if unread:
        fail(f"weights: unknown arrays {sorted(unread)}")

    bos, eot, pad = words.index("<bos>"), words.index("<eot>"), words.index("<pad>")
    os.makedirs(folder, exist_ok=True)
    write(folder, "model.safetensors", safetensors(tensors))
    write(folder, "config.json", dump({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config["vocab"],
        "hidden_size": config["d"],
        "intermediate_size": config["ff"],
        "num_hidden_layers": config["nl"],
        "num_attention_heads": config["nh"],
        "num_key_value_heads": config["nkv"],
        "head_dim": config["dh"],
        "hidden_act": "silu",
        "rms_norm_eps": config["eps"],
        "rope_theta": config["theta"],
        "rope_scaling": None,
        "max_position_embeddings": positions,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": bos,
        "eos_token_id": eot,
        "pad_token_id": pad,
        "torch_dtype": "bfloat16",
    }))
    write(folder, "generation_config.json", dump({
        "bos_token_id": bos, "eos_token_id": eot, "pad_token_id": pad, "do_sample": False,
    }))
    write(folder, "tokenizer.json", dump({
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": w, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i, w in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        # The format wants a name here. It is no word of the vocabulary, so an
        # unknown word is an error, not a token.
        "model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(words)}, "unk_token": "<unk>"},
    }))
    write(folder, "tokenizer_config.json", dump({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eot>",
        "pad_token": "<pad>",
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }))
    write(folder, "README.md", readme.encode())


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    weights, config = np.load(sys.argv[1]), json.load(open(sys.argv[2]))
    folder = sys.argv[3] if len(sys.argv) == 4 else os.path.join(ROOT, "model", "builtin", "reference")
    words = open(os.path.join(ROOT, "datasets", "vocabulary.txt"), encoding="utf-8").read().split()
    write_folder(folder, {name: weights[name] for name in weights.files}, config, words, MAX_POSITIONS, README)


if __name__ == "__main__":
    main()
