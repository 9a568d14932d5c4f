#!/usr/bin/env python3
"""Makes training/testdata/blocks: one LookaheadKV step over quantised weights with PyTorch,
whose model has what the weights are widened to.

    pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 gptqmodel==7.7.0 safetensors numpy
    python3 lab/golden/golden_training_blocks.py

Model and adapter are made of numbers that the test makes, too (numbers and words below), so that only
results are stored. The step is that of golden_training.py. A format's blocks are widened by gguf
(Q4_K, Q8_0, Q4_1), transformers (fp8) and gptqmodel (gptq, columns out of order), then rounded to
bfloat16.

steps.json holds the loss of each format. FORMAT.safetensors holds, as float32,

  target, lookaheadkv.scores    [layers, heads, prompt]
  lookaheadkv.grad.NAME         gradient of the KL loss
"""

import json
from pathlib import Path

import golden_training
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type, quants
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module
from safetensors.numpy import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

OUT = Path(__file__).resolve().parents[2] / "training/testdata/blocks"
HIDDEN, LAYERS, HEADS, KV_HEADS, VOCAB, ROWS, RANK, ALPHA = 256, 2, 4, 1, 64, 17, 2, 6.0
PROMPT, RESPONSE = [(7 * i * i + 3 * i) % VOCAB for i in range(40)], [(5 * i * i + i + 1) % VOCAB for i in range(ROWS)]
LINEAR = {f"{part}.{m}_proj": ((HIDDEN // HEADS * KV_HEADS) if m in "kv" else HIDDEN, HIDDEN)
          for part, ms in [("self_attn", "qkvo"), ("mlp", ("gate", "up", "down"))] for m in ms}


def words(name, n):
    """n words of 32 bits: a hash (MurmurHash3's last step) of their index and the name (FNV-1a)."""
    seed = 2166136261
    for b in name.encode():
        seed = (seed ^ b) * 16777619 & 0xFFFFFFFF
    h = np.arange(n, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(seed)
    for shift, by in (16, 0x85EBCA6B), (13, 0xC2B2AE35):
        h = (h ^ (h >> np.uint32(shift))) * np.uint32(by)
    return h ^ (h >> np.uint32(16))


def numbers(name, *shape):
    """Multiples of 2⁻²⁴ from −½ to ½."""
    h = words(name, int(np.prod(shape)))
    return ((h >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)).reshape(shape)


def low_bytes(name, n):
    return (words(name, n) & np.uint32(255)).astype(np.uint8)


def ggml(name, out, columns, fmt, elems, size, halves):
    blocks = low_bytes(name, out * columns // elems * size).reshape(-1, size)
    for at, value in halves.items():
        blocks[:, at : at + 2] = np.array([value], np.float16).view(np.uint8)
    return torch.from_numpy(quants.dequantize(blocks, fmt).reshape(out, columns).copy())


def fp8(name, out, columns):
    codes = (low_bytes(name, out * columns) & 0xBF).reshape(out, columns)
    scale = (numbers(name + "_scale_inv", -(-out // 128), columns // 128) + np.float32(1)) / np.float32(16)
    whole = np.zeros((128 * len(scale), columns), np.uint8)  # the package refuses ragged blocks
    whole[:out] = codes
    stored = torch.from_numpy(whole).view(torch.float8_e4m3fn)
    return Fp8Dequantize(None)._dequantize_one(stored, torch.from_numpy(scale), output_dtype=torch.bfloat16)[:out]


def gptq(name, out, columns):
    at = name.removesuffix("weight")
    m = TorchLinear(bits=4, group_size=128, sym=False, desc_act=True, in_features=columns, out_features=out, bias=False, pack_dtype=torch.int32)
    m.eval()
    m.qweight = torch.from_numpy(words(at + "qweight", columns // 8 * out).view(np.int32).reshape(columns // 8, out).copy())
    m.qzeros = torch.full((columns // 128, out // 8), 0x77777777, dtype=torch.int32)
    m.scales = torch.from_numpy(((words(at + "scales", columns // 128 * out) >> np.uint32(24)).astype(np.float32) / 512 + 0.75) / 64).reshape(-1, out).half()
    m.g_idx = torch.tensor([i * 37 % columns // 128 for i in range(columns)], dtype=torch.int32)
    convert_gptq_v1_to_v2_format_module(m, 4, torch.int32)
    return m.dequantize_weight().t()


FORMATS = {
    "Q4_K": lambda *a: ggml(*a, Type.Q4_K, 256, 144, {0: 2.0**-12, 2: 2.0**-9}),
    "Q8_0": lambda *a: ggml(*a, Type.Q8_0, 32, 34, {0: 2.0**-10}),
    "Q4_1": lambda *a: ggml(*a, Type.Q4_1, 32, 20, {0: 2.0**-6, 2: -7.5 * 2.0**-6}),
    "fp8": fp8,
    "gptq": gptq,
}


def build(fmt):
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True, attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).double().eval()
    model.requires_grad_(False)
    state = {}
    for name in model.state_dict():
        if name == "lm_head.weight":
            continue
        module = name.split(".", 3)[-1].removesuffix(".weight")
        if module in LINEAR:
            state[name] = FORMATS[fmt](name, *LINEAR[module]).to(torch.bfloat16)
        elif "norm" in name:
            state[name] = torch.from_numpy(1 + numbers(name, HIDDEN) / 2)
        else:
            state[name] = torch.from_numpy(2 * numbers(name, VOCAB, HIDDEN))
    missing, surplus = model.load_state_dict({k: v.double() for k, v in state.items()}, strict=False)
    assert missing == ["lm_head.weight"] and not surplus, (missing, surplus)
    n = len(PROMPT)
    with torch.no_grad():
        target = golden_training.attention_scores(model, ROWS, n, input_ids=torch.tensor([PROMPT + RESPONSE]))
    golden_training.ROWS, golden_training.RANK, golden_training.ALPHA = ROWS, RANK, ALPHA
    parameter = lambda name, *shape: torch.nn.Parameter(torch.from_numpy(numbers(name, *shape) / 2).double())
    parameters = {"embeddings": torch.nn.Parameter(torch.from_numpy(2 * numbers("embeddings", ROWS, HIDDEN)).double())}
    for i, layer in enumerate(model.model.layers):
        for module, (out, columns) in LINEAR.items():
            parent, name = getattr(layer, module.split(".")[0]), module.split(".")[1]
            lora = golden_training.MaskedLoRA(getattr(parent, name), torch.Generator())
            at = f"layers.{i}.{name}"
            lora.A, lora.B, lora.active = parameter(at + ".lora_A", RANK, columns), parameter(at + ".lora_B", out, RANK), True
            setattr(parent, name, lora)
            parameters |= {at + ".lora_A": lora.A, at + ".lora_B": lora.B}
    x = torch.cat([model.get_input_embeddings()(torch.tensor([PROMPT])), parameters["embeddings"][None]], 1)
    scores = golden_training.attention_scores(model, ROWS, n, inputs_embeds=x)
    p, q = target / target.sum(-1, keepdim=True), scores / scores.sum(-1, keepdim=True)
    loss = (p * (p.log() - q.log())).sum(-1).mean()
    loss.backward()
    # What the last layer computes after its scores has no effect on them.
    grads = {k: p.grad for k, p in parameters.items() if p.grad is not None and p.grad.abs().max() > 0}
    assert len(grads) == 1 + 2 * 7 * (LAYERS - 1) + 2 * 2, sorted(grads)
    tensors = {"target": target, "lookaheadkv.scores": scores.detach()} | {f"lookaheadkv.grad.{k}": g for k, g in grads.items()}
    save_file({k: np.ascontiguousarray(t.float().numpy()) for k, t in tensors.items()}, OUT / f"{fmt}.safetensors")
    (OUT / f"{fmt}.safetensors").chmod(0o644)
    print(f"{fmt}: KL {loss.item():.6f}, {len(grads)} gradients, weights of {state['model.layers.0.mlp.up_proj.weight'].float().std():.3f}")
    return loss.item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    np.seterr(over="ignore")
    OUT.mkdir(parents=True, exist_ok=True)
    losses = {fmt: build(fmt) for fmt in FORMATS}
    versions = {m.__name__: m.__version__ for m in (torch, transformers, np)}
    (OUT / "steps.json").write_text(json.dumps({
        "versions": versions, "prompt": PROMPT, "response": RESPONSE, "rows": ROWS, "rank": RANK, "alpha": ALPHA, "losses": losses}) + "\n")
