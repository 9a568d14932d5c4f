"""What presses of kvpress 0.5.5 keep of a context (KVzip and KVzip+, one ranking of all heads or of a layer's; KeyDiff; Expected
Attention; KVzap by a folder of gates), for kvpresspeer.

  presses.py MODEL_FOLDER CONTEXT.json RATIO OUT.json [GATES]   # CONTEXT: token ids, with what the chat template begins with; RATIO is evicted
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, DynamicCache
from kvpress import ExpectedAttentionPress, KVzapPress, KVzipPress, KeyDiffPress
from kvpress.presses.kvzap_press import KVzapModel
folder, context_file, ratio, out, gates = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4], sys.argv[5:]
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
ids = torch.tensor([json.load(open(context_file))])
n = ids.shape[1]
res = {}


def kept_by(press, **options):
    """Entries [layer][kv head] that a press which scores keeps; the cache stays whole."""
    kept = []

    class Told(press):
        def compress(self, module, hidden_states, keys, values, attentions, kwargs):
            scores = self.score(module, hidden_states, keys, values, attentions, kwargs)[0]
            kept.append([sorted(s.topk(int(n * (1 - ratio))).indices.tolist()) for s in scores])
            return keys, values

    with Told(compression_ratio=ratio, **options)(model):
        model.model(input_ids=ids, past_key_values=DynamicCache())
    return kept


class GatesPress(KVzapPress):
    def post_init_from_model(self, model):
        self.kvzap_model = KVzapModel.from_pretrained(gates[0])


with torch.no_grad():
    if gates:
        res["kvzap"] = kept_by(GatesPress)
    for name, kw in {"global": {}, "layer": {"layerwise": True}}.items():
        for policy, plus in {"kvzip": False, "kvzip+": True}.items():
            p = KVzipPress(compression_ratio=ratio, kvzip_plus_normalization=plus, **kw)
            cache = DynamicCache()
            try:
                with p(model):
                    model.model(input_ids=ids, past_key_values=cache)
            except ValueError as e:  # kvpress does not take the model
                print(e, file=sys.stderr)
                continue
            kept = []
            for layer in model.model.layers:
                b, h, s = layer.self_attn.masked_key_indices
                mask = torch.ones(model.config.num_key_value_heads, n, dtype=torch.bool)
                mask[h, s] = False
                kept.append([torch.nonzero(m).flatten().tolist() for m in mask])
                layer.self_attn.masked_key_indices = None
            res[policy + "/" + name] = kept
    for name, press, options in [("keydiff", KeyDiffPress, {}), ("expectedattention", ExpectedAttentionPress, {}),
                                 ("expectedattention/mean", ExpectedAttentionPress, {"use_covariance": False, "use_vnorm": False})]:
        try:
            res[name] = kept_by(press, **options)
        except AttributeError as e:  # nor does it take this one
            print(name, e, file=sys.stderr)
json.dump(res, open(out, "w"))
print({k: sum(len(h) for l in v for h in l) for k, v in res.items()}, n)
