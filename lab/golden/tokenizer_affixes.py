#!/usr/bin/env python3
"""Makes model/tokenizer/testdata/affixes.json: what transformers puts before and after a text,
by the tokenizer class and its settings in tokenizer_config.json and config.json.

    pip install transformers==4.57.6
    python3 lab/golden/tokenizer_affixes.py model/tokenizer/testdata

The tokenizer's own post-processor puts </s> behind a text. What transformers refuses is left out.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer

TOKENS = ["<unk>", "<s>", "</s>", "<bos>", "<eos>", "<|endoftext|>", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"]
CLASSES = ["LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "GemmaTokenizerFast", "CohereTokenizerFast",
           "GPTNeoXTokenizerFast", "PreTrainedTokenizerFast", "Qwen2Tokenizer"]
SETTINGS = [{}, {"add_bos_token": True}, {"add_bos_token": False}, {"add_bos_token": None}, {"add_eos_token": True},
            {"add_eos_token": None}, {"add_bos_token": False, "add_eos_token": True}]
NAMED = [{}, {"bos_token": "<bos>", "eos_token": "<eos>"}]
TYPES = ["llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3"]


def main():
    vocab = {token: i for i, token in enumerate(TOKENS + ["a"])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in TOKENS])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", vocab["</s>"])])
    cases = []

    def add(config, model):
        with tempfile.TemporaryDirectory() as folder:
            files = {"config.json": model}
            if config is not None:
                files["tokenizer_config.json"] = config
            for name, value in files.items():
                (Path(folder) / name).write_text(json.dumps(value))
            tokenizer.save(str(Path(folder) / "tokenizer.json"))
            try:
                loaded = AutoTokenizer.from_pretrained(folder)
            except Exception:  # such as a class that wants its SentencePiece file
                return
            if len(loaded) == len(vocab):  # otherwise the class has added its own tokens
                cases.append({"files": files, "ids": loaded("a").input_ids})

    for name, settings, named in itertools.product(CLASSES, SETTINGS, NAMED):
        add({"tokenizer_class": name, **settings, **named}, {"model_type": "llama"})
    for kind in TYPES:
        for config in [None, {}, {"add_bos_token": False}]:
            add(config, {"model_type": kind})
    add({}, {"model_type": "qwen2", "tokenizer_class": "LlamaTokenizer"})
    add({}, {"model_type": "llama", "tokenizer_class": "PreTrainedTokenizerFast"})
    tokenizer_json = json.loads(tokenizer.to_str())
    out = Path(sys.argv[1]) / "affixes.json"
    lines = ",\n".join(json.dumps(c) for c in cases)
    out.write_text('{"tokenizer": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(tokenizer_json), lines))


main()
