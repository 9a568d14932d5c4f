"""Write a trained reference model as a Hugging Face folder."""

import json
import os
import sys

import numpy as np

# Prompts of up to 2,048 tokens, their answers, and room for learned rows and drafts.
POSITIONS = 4096

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
# {name}

A Llama-architecture model of {count:,} parameters ({nl} layers, hidden size {d}, {nh} query and
{nkv} KV heads of {dh}) with a vocabulary of {vocab} words, trained from scratch on the tasks of
package `datasets`: prompts of up to 2,048 tokens and their answers. {purpose} `max_position_embeddings` is {positions} so that
longer prompts run; nothing is claimed about them. The tokenizer splits at white space; a word
outside the vocabulary is an error, because there is no token for unknown words.

Share of exact answers with the full cache, {examples} validation examples a task and length:

{table}

Written by `lab/reference/model/train.py`, with the words of `datasets/vocabulary.txt`;
`lab/reference/model/check.py` checks it against transformers. Do not edit it by hand.
"""

PURPOSE = {
    "draft": """It writes drafts for the
reference model: `--draft shipped` for `speckv`.""",
}
REFERENCE = """With it every command works,
and means something, without any other model: its answers are right with the full cache and go
wrong when an eviction policy drops what they need."""


def fail(message):
    sys.exit(f"export: {message}")


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


def write_file(folder, name, data):
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
    write_file(folder, "model.safetensors", safetensors(tensors))
    write_file(folder, "config.json", dump({
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
    write_file(folder, "generation_config.json", dump({
        "bos_token_id": bos, "eos_token_id": eot, "pad_token_id": pad, "do_sample": False,
    }))
    write_file(folder, "tokenizer.json", dump({
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
    write_file(folder, "tokenizer_config.json", dump({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eot>",
        "pad_token": "<pad>",
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }))
    write_file(folder, "README.md", readme.encode())


def write(folder, weights, config, words, scores, examples):
    """scores are shares of exact answers [length][task]."""
    count = sum(w.size for w in weights.values())
    lines = ["| task | " + " | ".join(map(str, scores)) + " |", "|---|" + "---|" * len(scores)]
    for task in next(iter(scores.values())):
        lines.append(f"| `{task}` | " + " | ".join(f"{of[task]:.3f}" for of in scores.values()) + " |")
    name = os.path.basename(os.path.dirname(os.path.abspath(folder)))
    readme = README.format(name=name, purpose=PURPOSE.get(name, REFERENCE), count=count, positions=POSITIONS,
                           examples=examples, table="\n".join(lines), **config)
    write_folder(folder, weights, config, words, POSITIONS, readme)


def read(folder, config, words):
    """The float32 arrays by short name of a folder that write has made."""
    path = os.path.join(folder, "model.safetensors")
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        if list(json.load(f)["model"]["vocab"]) != words:
            sys.exit(f"export: {folder}: its words are not those of the lessons")
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    header.pop("__metadata__", None)
    weights = {}
    for short, name, shape in hugging_face_names(config):
        about = header.pop(name, None)
        if about is None or about["dtype"] != "BF16" or tuple(about["shape"]) != shape:
            sys.exit(f"export: {path}: {name}: got {about}, want BF16 of {shape}")
        begin, end = about["data_offsets"]
        upper = np.frombuffer(data[begin:end], "<u2").astype(np.uint32)
        weights[short] = (upper << 16).view(np.float32).reshape(shape)
    if header:
        sys.exit(f"export: {path}: unknown tensors {sorted(header)}")
    return weights
