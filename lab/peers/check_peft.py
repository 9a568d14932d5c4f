#!/usr/bin/env python3
"""Opens exported LookaheadKV adapters with PEFT and transformers and compares what
they compute with what Glimpse computes.

    pip install torch==2.15.0 transformers==5.23.0 peft==0.21.2 safetensors==0.8.0 numpy
    python3 lab/peers/check_peft.py

Other versions may do; docs/interop.md records those that were tried. The programs
bin/train and bin/evict must be built (make build).

For the built-in model and for tiny models of other families, an adapter is trained
for a few steps and exported with "train export". PEFT loads the folder as it is. The
prompt and the learned rows go through transformers in one pass with
alora_offsets=[rows], so that LoRA acts on the last rows alone. Three things are
checked on several prompts:

  1. LoRA is active on the learned rows: their keys differ from the base model's.
  2. It is active nowhere else: the prompt's keys and values have the bits of the
     base model's, in every layer.
  3. The importance scores, the mean over the rows of the attention on the prompt, of transformers in float64
     are those of "evict inspect" to 1e-4, as |a - b| / (1e-4 + |a| + |b|). Adapters of a few large steps make
     much of rounding: where transformers in float32 is off by more than a quarter of that, four times as much as it.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import peft
import safetensors
import torch
import transformers
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "model/builtin/reference"
GOLDEN = ROOT / "model/testdata/golden"
LENGTHS = [17, 64, 150]
TOLERANCE = 1e-4


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(c) for c in command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def prompts(vocabulary, seed):
    draw = random.Random(seed)
    return [[draw.randrange(vocabulary) for _ in range(n)] for n in LENGTHS]


def export(folder, work):
    """Trains an adapter for the model and exports it; the folder that PEFT opens."""
    model = [] if folder == REFERENCE else ["--model", folder]
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    (work / "prompts.jsonl").write_text("".join(
        json.dumps({"prompt_ids": p + [1, 3, 5]}) + "\n" for p in prompts(vocabulary, 1)))
    run(ROOT / "bin/train", "generate", *model, "--prompts", work / "prompts.jsonl", "--max-new", 12,
        "--temperature", 1, "--out", work / "pairs.jsonl")
    # The factors B start at zero: enough steps, large enough, that they matter.
    run(ROOT / "bin/train", "lookahead", *model, "--data", work / "pairs.jsonl", "--held-out", work / "pairs.jsonl",
        "--steps", 12, "--batch", 3, "--warmup", 0, "--lr", 0.05, "--rows", 6, "--rank", 4, "--pooling", 3, "--validate", 0,
        "--run", work / "run", "--out", work / "trained")
    run(ROOT / "bin/train", "export", work / "trained", work / "exported")
    return work / "exported"


def base_of(folder, dtype=torch.float32):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()


def tuned_of(folder, adapter, dtype=torch.float32):
    with warnings.catch_warnings():
        # In the last layer only queries and keys have factors; PEFT starts the others at zero.
        warnings.filterwarnings("ignore", message="Found missing adapter keys")
        return peft.PeftModel.from_pretrained(base_of(folder, dtype), adapter).eval()


def caches(output):
    """Keys and values of every layer, [heads, tokens, width]."""
    cache = output.past_key_values
    layers = cache.layers if hasattr(cache, "layers") else None
    if layers is not None:
        return [(l.keys[0], l.values[0]) for l in layers]
    return [(k[0], v[0]) for k, v in cache]


def scores_of(attentions, rows, prompt, groups, kernel):
    """Mean over the rows, mean over each KV head's queries, max-pool: [layers, KV heads, prompt]."""
    probabilities = torch.cat(attentions)[:, :, -rows:, :prompt].double().mean(2)
    layers, heads, _ = probabilities.shape
    grouped = probabilities.reshape(layers, heads // groups, groups, prompt).mean(2)
    return torch.nn.functional.max_pool1d(grouped, kernel, stride=1, padding=kernel // 2)


def error(a, b):
    return (np.abs(a - b) / (1e-4 + np.abs(a) + np.abs(b))).max()


@torch.no_grad()
def check(name, folder, adapter, work):
    config = json.loads((folder / "config.json").read_text())
    manifest = json.loads((adapter / "glimpse.json").read_text())
    rows = load_file(adapter / "lookahead_embeddings.safetensors")["lookahead_embeddings"]
    n = rows.shape[0]
    plain = base_of(folder)
    tuned, precise = tuned_of(folder, adapter), tuned_of(folder, adapter, torch.float64)
    lora = tuned.peft_config["default"]
    assert lora.alora_invocation_tokens == json.loads((adapter / "adapter_config.json").read_text())["alora_invocation_tokens"]
    stored = load_file(adapter / "adapter_model.safetensors")
    loaded = {k.replace(".default", ""): v for k, v in tuned.state_dict().items() if "lora_" in k}
    for key, value in stored.items():
        assert torch.equal(loaded[key], value.to(loaded[key].dtype)), f"{name}: PEFT did not load {key}"
    extra = sorted(set(loaded) - set(stored))
    last = f".layers.{config['num_hidden_layers'] - 1}."
    assert all(last in k and ".q_proj." not in k and ".k_proj." not in k for k in extra), extra
    assert all(not loaded[k].any() for k in extra if "lora_B" in k), "PEFT starts factors without a stored value at zero"

    groups = config["num_attention_heads"] // config["num_key_value_heads"]
    worst, rounding, active = 0.0, 0.0, float("inf")
    for ids in prompts(config["vocab_size"], 2):
        embed = plain.get_input_embeddings()
        x = torch.cat([embed(torch.tensor([ids])), rows[None].float()], 1)
        with_lora = tuned(inputs_embeds=x, alora_offsets=[n], use_cache=True, output_attentions=True)
        without = plain(inputs_embeds=x, use_cache=True)
        for layer, ((k, v), (k0, v0)) in enumerate(zip(caches(with_lora), caches(without))):
            p = len(ids)
            assert torch.equal(k[:, :p], k0[:, :p]) and torch.equal(v[:, :p], v0[:, :p]), \
                f"{name}: layer {layer}: the prompt's keys or values changed"
            active = min(active, (k[:, p:] - k0[:, p:]).abs().max().item())
        wider = tuned(inputs_embeds=x, alora_offsets=[n + 1], use_cache=True)  # the comparison would notice
        assert not torch.equal(caches(wider)[0][0][:, :p], caches(without)[0][0][:, :p]), "one row more changes nothing"
        (work / "prompt.ids").write_text(" ".join(map(str, ids)))
        ours = json.loads(run(ROOT / "bin/evict", "inspect", "--model", folder, "--adapter", adapter,
                              "--policy", "lookaheadkv", "--budget", 8, "--token-ids", work / "prompt.ids", "--json"))["heads"]
        attended = precise(inputs_embeds=x.double(), alora_offsets=[n], use_cache=True, output_attentions=True).attentions
        theirs, rounded = (scores_of(a, n, len(ids), groups, manifest["pooling_kernel"]).numpy() for a in (attended, with_lora.attentions))
        rounding = max(rounding, error(rounded, theirs))
        for row in ours:
            a, b = np.array(row["scores"]), theirs[row["layer"], row["kv_head"]]
            assert a.shape == b.shape, f"{name}: {a.shape} scores, want {b.shape}"
            worst = max(worst, error(a, b))
    ok = worst <= max(TOLERANCE, 4 * rounding) and active > 1e-3
    print(f"{'PASS' if ok else 'FAIL'}  {name}: {len(stored)} LoRA tensors; scores within {worst:.2g} on {len(LENGTHS)} prompts, transformers in float32 {rounding:.2g}; "
          f"keys of the rows moved by at least {active:.2g}, those of the prompt by 0 bits")
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["reference", "llama3.1", "llama3.2-tied", "mistral-v0.3", "qwen2", "qwen3", "mixtral"],
                        help="reference, or names of folders in model/testdata/golden")
    arguments = parser.parse_args()
    print("versions: " + ", ".join(f"{m.__name__} {m.__version__}" for m in (torch, transformers, peft, safetensors)))
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)
    passed = True
    for name in arguments.models:
        folder = REFERENCE if name == "reference" else GOLDEN / name
        if not folder.is_dir():
            sys.exit(f"{name}: {folder} is not a folder")
        with tempfile.TemporaryDirectory() as work:
            adapter = export(folder, Path(work))
            passed &= check(name, folder, adapter, Path(work))
            rounded = Path(work) / "bf16"
            run(ROOT / "bin/train", "export", adapter, rounded, "--dtype", "bf16")
            passed &= check(f"{name}, in bf16", folder, rounded, Path(work))
            if folder == REFERENCE:
                passed &= check("reference, shipped adapter", folder, ROOT / "adapters/reference/lookaheadkv", Path(work))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
