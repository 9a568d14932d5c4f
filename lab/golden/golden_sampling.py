#!/usr/bin/env python3
"""Makes model/testdata/sampling.json: what transformers makes of logits, and which
tokens it generates, as generation_config.json says.

    pip install torch==2.8.0 transformers==4.57.6
    python3 lab/golden/golden_sampling.py [model/testdata/sampling.json]

steps      one step each: the file, the prompt, the tokens generated so far, the logits,
           and the scores after generate's processors, null for -inf; where the file
           samples, the probabilities after all of them too
responses  greedy responses of models of model/testdata/golden to their second prompt
"""

import json
import random
import sys
from pathlib import Path

import torch
import transformers
from transformers import GenerationConfig

VOCAB, EOS = 40, [1, 7]
PROMPT = [3, 5, 8, 3, 5, 9, 11, 3, 5]
SAID = [12, 8, 3, 5]

# name: (generation_config.json but for the end tokens, tokens generated so far)
STEPS = {
    "nothing": ({}, SAID),
    "greedy with a temperature": (dict(do_sample=False, temperature=0.5, top_p=0.5), SAID),
    "sample": (dict(do_sample=True), SAID),
    "sample from all": (dict(do_sample=True, top_k=0), SAID),
    "temperature": (dict(do_sample=True, temperature=0.6, top_p=0.9), SAID),
    "top-k": (dict(do_sample=True, top_k=5), SAID),
    "top-p": (dict(do_sample=True, top_p=0.5, top_k=0), SAID),
    "top-k and top-p": (dict(do_sample=True, temperature=1.3, top_p=0.7, top_k=12), SAID),
    "min-p": (dict(do_sample=True, min_p=0.2, top_k=0), SAID),
    "all four": (dict(do_sample=True, temperature=0.8, top_k=20, top_p=0.95, min_p=0.05), SAID),
    "repetition penalty": (dict(repetition_penalty=1.3), SAID),
    "repetition reward": (dict(repetition_penalty=0.8), SAID),
    "repetition penalty, sampled": (dict(do_sample=True, repetition_penalty=1.1, temperature=0.7, top_p=0.8, top_k=20), SAID),
    "n-gram of 1": (dict(no_repeat_ngram_size=1), SAID),
    "n-gram of 2": (dict(no_repeat_ngram_size=2), SAID),
    "n-gram of 3": (dict(no_repeat_ngram_size=3), SAID),
    "n-gram longer than the text": (dict(no_repeat_ngram_size=20), SAID),
    "min length of the prompt and a response": (dict(min_length=len(PROMPT) + len(SAID) + 1), SAID),
    "min length reached": (dict(min_length=len(PROMPT) + len(SAID)), SAID),
    "min new": (dict(min_new_tokens=5), SAID),
    "min new reached": (dict(min_new_tokens=4), SAID),
    "min new at the first token": (dict(min_new_tokens=1), []),
    "min new before min length": (dict(min_new_tokens=2, min_length=50), SAID),
    "suppress": (dict(suppress_tokens=[0, 2, 39]), SAID),
    "suppress at the beginning": (dict(begin_suppress_tokens=[4, 6]), []),
    "suppress at the beginning only": (dict(begin_suppress_tokens=[4, 6]), [12]),
    "bad words": (dict(bad_words_ids=[[10], [3, 5, 13], [5, 14], [8, 3, 5, 15], [4, 16], [1]]), SAID),
    "bad words longer than the text": (dict(bad_words_ids=[[3, 5, 8, 3, 5, 9, 11, 3, 5, 20, 21]]), []),
    "everything": (dict(do_sample=True, temperature=0.9, top_k=25, top_p=0.9, min_p=0.01, repetition_penalty=1.2, no_repeat_ngram_size=3,
                        bad_words_ids=[[10]], min_new_tokens=9, suppress_tokens=[0], begin_suppress_tokens=[2]), SAID),
}

RESPONSES = {
    "repetition penalty": dict(repetition_penalty=1.5),
    "n-grams": dict(no_repeat_ngram_size=2, repetition_penalty=0.5),
    "suppressed": dict(suppress_tokens=list(range(0, 254, 3)), begin_suppress_tokens=list(range(1, 254, 3))),
    "an end held back": dict(min_new_tokens=12, suppress_tokens=list(range(0, 252))),
    "bad words": dict(bad_words_ids=[[i] for i in range(0, 254, 2)] + [[i, i + 2] for i in range(1, 250, 2)], repetition_penalty=1.2),
}


def tiny():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=VOCAB, eos_token_id=EOS))


def processors(model, config, prompt):
    """Those that generate would use."""
    config = GenerationConfig.from_dict(config)
    model._prepare_special_tokens(config, kwargs_has_attention_mask=True)
    ids = torch.tensor([prompt])
    config = model._prepare_generated_length(config, True, "min_length" not in config.to_diff_dict(), "input_ids", len(prompt), ids)
    return model._get_logits_processor(config, input_ids_seq_length=len(prompt), encoder_input_ids=ids)


def steps():
    model, rng = tiny(), random.Random(7)
    for name, (config, said) in STEPS.items():
        logits = [round(rng.gauss(0, 2), 3) for _ in range(VOCAB)]
        config = dict(config, eos_token_id=EOS)
        ids, x = torch.tensor([PROMPT + said]), torch.tensor([logits])
        scores = processors(model, dict(config, do_sample=False), PROMPT)(ids, x.clone())[0]
        out = dict(name=name, config=config, prompt=PROMPT, said=said, logits=logits,
                   scores=[None if s == float("-inf") else s for s in scores.tolist()])
        if config.get("do_sample"):
            last = processors(model, config, PROMPT)(ids, x.clone())[0]
            out["probabilities"] = last.double().softmax(-1).tolist()
        yield out


def responses(root):
    for folder in ["llama3.2-tied", "qwen3", "falcon"]:
        model = transformers.AutoModelForCausalLM.from_pretrained(root / folder, dtype=torch.float32).eval()
        prompt = json.loads((root / folder / "golden.json").read_text())["prompts"][1]["ids"]
        for name, config in RESPONSES.items():
            full = GenerationConfig.from_dict(dict(config, eos_token_id=255, pad_token_id=255))
            ids = torch.tensor([prompt])
            out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=full, max_new_tokens=24, use_model_defaults=False)
            yield dict(name=name, model=folder, config=dict(config, eos_token_id=255), tokens=out[0, len(prompt):].tolist())


def main():
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "model/testdata/sampling.json")
    lines = lambda cases: ",\n".join("  " + json.dumps(c) for c in cases)
    root = Path(__file__).resolve().parents[2] / "model/testdata/golden"
    path.write_text(f'{{"transformers": "{transformers.__version__}",\n"steps": [\n{lines(steps())}\n],\n"responses": [\n{lines(responses(root))}\n]}}\n')
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
