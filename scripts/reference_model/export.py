"""Write a trained reference model as a Hugging Face folder."""

import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import convert_reference_model

# Prompts of up to 2,048 tokens, their answers, and room for learned rows and drafts.
POSITIONS = 4096

README = """\
# {name}

A Llama-architecture model of {count:,} parameters ({nl} layers, hidden size {d}, {nh} query and
{nkv} KV heads of {dh}) with a vocabulary of {vocab} words, trained from scratch on the long
tasks of package `datasets`: prompts of up to 2,048 tokens and their answers.
`max_position_embeddings` is {positions} so that longer prompts run; nothing is claimed about them.

Share of exact answers with the full cache, {examples} validation examples a task and length:

{table}

Written by `scripts/reference_model/train.py`; `scripts/reference_model/check.py` checks it against
transformers. Do not edit it by hand.
"""


def write(folder, weights, config, words, scores, examples):
    """scores are shares of exact answers [length][task]."""
    count = sum(w.size for w in weights.values())
    lines = ["| task | " + " | ".join(map(str, scores)) + " |", "|---|" + "---|" * len(scores)]
    for task in next(iter(scores.values())):
        lines.append(f"| `{task}` | " + " | ".join(f"{of[task]:.3f}" for of in scores.values()) + " |")
    readme = README.format(name=os.path.basename(os.path.dirname(os.path.abspath(folder))), count=count,
                           positions=POSITIONS, examples=examples, table="\n".join(lines), **config)
    convert_reference_model.write_folder(folder, weights, config, words, POSITIONS, readme)


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
    for short, name, shape in convert_reference_model.hugging_face_names(config):
        about = header.pop(name, None)
        if about is None or about["dtype"] != "BF16" or tuple(about["shape"]) != shape:
            sys.exit(f"export: {path}: {name}: got {about}, want BF16 of {shape}")
        begin, end = about["data_offsets"]
        upper = np.frombuffer(data[begin:end], "<u2").astype(np.uint32)
        weights[short] = (upper << 16).view(np.float32).reshape(shape)
    if header:
        sys.exit(f"export: {path}: unknown tensors {sorted(header)}")
    return weights
