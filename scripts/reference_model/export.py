"""Write a trained reference model as a Hugging Face folder."""

import os
import sys

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
