"""What presses of kvpress 0.5.5 keep of a context (KVzip, one ranking of all heads or of a layer's; KeyDiff), for kvpresspeer.

  kvpress.py MODEL_FOLDER CONTEXT.json RATIO OUT.json   # CONTEXT: token ids, with what the chat template begins with; RATIO is evicted
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, DynamicCache
from kvpress import KVzipPress, KeyDiffPress
folder, context_file, ratio, out = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
ids = torch.tensor([json.load(open(context_file))])
res = {}
with torch.no_grad():
    for name, kw in {"global": {}, "layer": {"layerwise": True}}.items():
        p = KVzipPress(compression_ratio=ratio, **kw)
        cache = DynamicCache()
        with p(model):
            model.model(input_ids=ids, past_key_values=cache)
        n = ids.shape[1]
        kept = []
        for layer in model.model.layers:
            b, h, s = layer.self_attn.masked_key_indices
            mask = torch.ones(model.config.num_key_value_heads, n, dtype=torch.bool)
            mask[h, s] = False
            kept.append([torch.nonzero(m).flatten().tolist() for m in mask])
            layer.self_attn.masked_key_indices = None
        res["kvzip/" + name] = kept
    cache = DynamicCache()
    model.model(input_ids=ids, past_key_values=cache)
    kp, kept = KeyDiffPress(compression_ratio=ratio), []
    for l in range(model.config.num_hidden_layers):
        s = kp.score(None, None, cache.layers[l].keys, None, None, None)[0]
        k = int(n * (1 - ratio))
        kept.append([sorted(x.topk(k).indices.tolist()) for x in s])
    res["keydiff"] = kept
json.dump(res, open(out, "w"))
print({k: sum(len(h) for l in v for h in l) for k, v in res.items()}, n)
