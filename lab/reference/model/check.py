#!/usr/bin/env python3
"""Check an exported reference model against transformers.

    python3 lab/reference/model/check.py FOLDER [EXAMPLES] [LENGTH ...]

The model is opened with transformers alone. Its tokenizer must give the generator's ids
for the generator's words, its chat template the generator's prompts, and its logits must
be those of the network that was trained. Greedy answers, generated token by token, must
be right as often as README.md says, up to three standard errors. Needs transformers,
PyTorch and the Go toolchain.
"""

import json
import math
import os
import re
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import network
from lessons import Lessons


def claims(folder):
    """The shares [length][task] that the folder's README.md states."""
    rows = [re.split(r"\s*\|\s*", line.strip("| \n")) for line in open(os.path.join(folder, "README.md")) if line.startswith("| ")]
    lengths = [int(n) for n in rows[0][1:]]
    return {n: {row[0].strip("`"): float(row[i + 1]) for row in rows[1:]} for i, n in enumerate(lengths)}


def messages(words, ids):
    """What the chat template makes a prompt of."""
    text = " ".join(words[i] for i in ids)
    body = text.removeprefix("<bos> <user> ").removesuffix(" <eot> <header> <assistant> <newline>")
    return [{"role": "user", "content": body}]


def check_tokenizer(tokenizer, lessons, folder):
    for task in lessons.tasks:
        b = lessons.examples(task, "test", 128, 5, 0, 2)
        for row in range(2):
            prompt = b.ids[row, : b.targets[b.targets[:, 0] == row][0, 1]].tolist()
            got = tokenizer.apply_chat_template(messages(lessons.words, prompt), add_generation_prompt=True)
            got = got if isinstance(got, list) else got["input_ids"]
            if got != prompt:
                sys.exit(f"check: {folder}: the chat template gives {got}, want {prompt}")
    print(f"tokenizer and chat template: as the generator, {2 * len(lessons.tasks)} prompts")


def check_logits(model, lessons, folder):
    """The largest difference of logits between transformers and the network that is trained,
    both in float32 over the same rounded weights."""
    # From the file: transformers gives some of it other names from version to version.
    config = json.load(open(os.path.join(folder, "config.json")))
    c = dict(d=config["hidden_size"], nl=config["num_hidden_layers"], nh=config["num_attention_heads"],
             nkv=config["num_key_value_heads"], dh=config["head_dim"], ff=config["intermediate_size"],
             theta=config["rope_theta"], eps=config["rms_norm_eps"])
    names = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
             "g": "mlp.gate_proj", "u": "mlp.up_proj", "w": "mlp.down_proj",
             "n1": "input_layernorm", "n2": "post_attention_layernorm"}
    of = model.state_dict()
    p = {"emb": of["model.embed_tokens.weight"], "head": of["lm_head.weight"], "norm": of["model.norm.weight"]}
    for l in range(c["nl"]):
        for short, name in names.items():
            p[f"{l}_{short}"] = of[f"model.layers.{l}.{name}.weight"]
    worst, range_ = 0.0, 0.0
    for task in ("key1", "q_hops", "summary"):
        ids = torch.from_numpy(lessons.examples(task, "test", 512, 5, 0, 2).ids)
        want = model(ids).logits
        x = network.hidden(p, c, ids, torch.float32, torch.float32)
        got = network.logits(p, c, x)
        worst = max(worst, (got - want).abs().max().item())
        range_ = max(range_, want.abs().max().item())
    print(f"logits: largest difference {worst:.2e} of values up to {range_:.1f}")
    if not worst < 1e-4 * max(1.0, range_):
        sys.exit("check: the logits differ from those of the network that was trained")


def check_answers(model, lessons, stated, examples, lengths):
    eot, low = lessons.words.index("<eot>"), []
    for length in lengths:
        for task in lessons.tasks:
            right = 0
            for first in range(examples):
                b = lessons.examples(task, "validation", length, 1, first, 1)
                ids, ok = torch.from_numpy(b.ids), True
                for _, begin, end, _ in b.targets:
                    # A later turn goes on from the right answers, as it does if they were given.
                    out = model.generate(ids[:, :begin], attention_mask=torch.ones(1, int(begin), dtype=torch.long),
                                         max_new_tokens=int(end - begin), do_sample=False, pad_token_id=eot)
                    ok &= torch.equal(out[0, begin:], ids[0, begin:end])
                right += ok
            share, want = right / examples, stated[length][task]
            floor = want - 3 * math.sqrt(max(want * (1 - want), 0.01) / examples)
            print(f"{task:14} {length:5} tokens  {right:4}/{examples:<4} {share:.3f}  stated {want:.3f}{'  TOO LOW' if share < floor else ''}", flush=True)
            if share < floor:
                low.append((task, length))
    return low


@torch.no_grad()
def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    examples = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    stated = claims(folder)
    lengths = [int(n) for n in sys.argv[3:]] or list(stated)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    lessons = Lessons()
    check_tokenizer(AutoTokenizer.from_pretrained(folder), lessons, folder)
    check_logits(model, lessons, folder)
    low = check_answers(model, lessons, stated, examples, lengths)
    lessons.close()
    sys.exit(1 if low else 0)


if __name__ == "__main__":
    main()
