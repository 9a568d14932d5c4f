"""Writes gates/testdata: seeded gates for model/testdata/golden/llama3.2-tied in the layouts that KVzap and Fast KVzip publish, and
what kvpress 0.5.5 keeps by them: kept.json by budgets, threshold.json by a threshold, of a prompt and of an answer's tokens.

  golden_gates.py REPOSITORY [threshold]    # threshold.json alone, of the gates that are there
"""
import json
import os
import shutil
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache
from kvpress import DMSPress, FastKVzipPress, KVzapPress
from kvpress.presses.fastkvzip_press import FastKVzipGate
from kvpress.presses.kvzap_press import KVzapConfig, KVzapModel

N, RATIO, DIM, SINK, WINDOW = 100, 0.5, 16, 3, 10
root = sys.argv[1]
out = os.path.join(root, "gates", "testdata")
model = AutoModelForCausalLM.from_pretrained(os.path.join(root, "model/testdata/golden/llama3.2-tied"), dtype=torch.float32, attn_implementation="sdpa").eval()
c = model.config
layers, kv_heads, hidden = c.num_hidden_layers, c.num_key_value_heads, c.hidden_size
torch.manual_seed(3)
ids = torch.randint(3, c.vocab_size, (1, N))


class Stored(KVzapPress):
    def __init__(self, folder):
        super().__init__()
        self.kvzap_model = KVzapModel.from_pretrained(folder)

    def post_init_from_model(self, model):
        pass


def by_threshold():
    """What is not masked after the prompt, and after each token of an answer, [step][layer][KV head]."""
    answer = torch.randint(3, c.vocab_size, (12,), generator=torch.Generator().manual_seed(4))
    told = {"tokens": ids[0].tolist(), "answer": answer.tolist(), "window": WINDOW, "thresholds": {}, "kept": {}}
    for name in "linear", "mlp":
        press = Stored(os.path.join(out, name))
        scores = []
        hook = lambda module, args, kwargs, output: scores.append(press.score(module, kwargs["hidden_states"], None, None, None, None))
        handles = [layer.self_attn.register_forward_hook(hook, with_kwargs=True) for layer in model.model.layers]
        model.model(input_ids=ids)
        for h in handles:
            h.remove()
        order = torch.cat(scores).flatten().sort().values
        middle = order[len(order) // 2 - 10 :][:20]  # equal tokens have equal scores
        widest = middle.diff().argmax()
        threshold = ((middle[widest] + middle[widest + 1]) / 2).item()
        dms, cache, steps = DMSPress(press, threshold=threshold, sliding_window_size=WINDOW, decoding=True), DynamicCache(), []
        with dms(model):
            for rows in [ids, *answer[:, None, None]]:
                model.model(input_ids=rows, past_key_values=cache)
                kept = []
                for layer in model.model.layers:
                    mask = torch.ones(kv_heads, cache.get_seq_length(), dtype=torch.bool)
                    if layer.self_attn.masked_key_indices is not None:
                        _, h, s = layer.self_attn.masked_key_indices
                        mask[h, s] = False
                    kept.append([torch.nonzero(m).flatten().tolist() for m in mask])
                steps.append(kept)
        for layer in model.model.layers:
            layer.self_attn.masked_key_indices = None
        told["thresholds"][name], told["kept"][name] = threshold, steps
    with open(os.path.join(out, "threshold.json"), "w") as f:
        json.dump(told, f)
    print("threshold:", {k: [len(h) for l in v[-1] for h in l] for k, v in told["kept"].items()})


if sys.argv[2:] == ["threshold"]:
    with torch.no_grad():
        by_threshold()
    sys.exit()

shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
golden = {"tokens": ids[0].tolist(), "kept": {}, "scores": {}}


class FromFolder(KVzapPress):
    def post_init_from_model(self, model):
        pass

    def compress(self, module, hidden_states, keys, values, attentions, kwargs):
        scores = self.score(module, hidden_states, keys, values, attentions, kwargs)[0]
        told.append([sorted(s.topk(int(N * (1 - RATIO))).indices.tolist()) for s in scores])
        logs.append(scores.tolist())
        return keys, values


with torch.no_grad():
    for name, inner in {"linear": None, "mlp": 24}.items():
        gates = KVzapModel(KVzapConfig(input_dim=hidden, output_dim=kv_heads, hidden_dim=inner, n_modules=layers))
        for p in gates.parameters():
            p.copy_(torch.randn(p.shape) * (0.3 if p.ndim == 2 else 1))
        folder = os.path.join(out, name)
        gates.save_pretrained(folder)
        press, told, logs = FromFolder(compression_ratio=RATIO), [], []
        press.kvzap_model = KVzapModel.from_pretrained(folder)
        with press(model):
            model.model(input_ids=ids, past_key_values=DynamicCache())
        golden["kept"][name], golden["scores"][name] = told, logs

    group = c.num_attention_heads // kv_heads
    gates = []
    for layer in range(layers):
        gate = FastKVzipGate(layer, hidden, kv_heads, group, torch.float32, DIM, SINK)
        for p in gate.parameters():
            p.copy_(torch.randn(p.shape) * (0.3 if p.ndim == 2 else 1))
        gates.append(gate)
    os.makedirs(os.path.join(out, "fastkvzip"))
    torch.save({"module": [g.state_dict() for g in gates], "loss": np.float64(0.25), "history": np.arange(3.0)},
               os.path.join(out, "fastkvzip", f"q{group}_dim{DIM}_sink{SINK}.pt"))
    for heads, layerwise in {"global": False, "layer": True}.items():
        press = FastKVzipPress(compression_ratio=RATIO, layerwise=layerwise)
        press.gates = gates
        with press(model):
            model.model(input_ids=ids, past_key_values=DynamicCache())
        kept = []
        for layer in model.model.layers:
            _, h, s = layer.self_attn.masked_key_indices
            mask = torch.ones(kv_heads, N, dtype=torch.bool)
            mask[h, s] = False
            kept.append([torch.nonzero(m).flatten().tolist() for m in mask])
            layer.self_attn.masked_key_indices = None
        golden["kept"]["fastkvzip/" + heads] = kept
with open(os.path.join(out, "kept.json"), "w") as f:
    json.dump(golden, f)
print({k: [len(h) for l in v for h in l] for k, v in golden["kept"].items()})
with torch.no_grad():
    by_threshold()
