#!/usr/bin/env python3
"""Makes model/testdata/golden_training: one LookaheadKV and one Judge Q step on
tiny models, written in the most straightforward way with PyTorch.

    pip install torch==2.8.0 transformers==4.57.1 safetensors==0.8.0 numpy
    # gpt-oss, gemma*, ministral3, mixtral, glm4, glm4-moe, lfm2, qwen3-next: transformers==5.24.0; NAME.json says what each was made with
    python3 lab/golden/golden_training.py [name ...]

For some of the models that golden_transformers.py made: a full pass of transformers
over prompt and response gives the target, a full pass over prompt and learned rows
the scores, and autograd goes through everything. LoRA wraps the linear layers and
is masked to the learned rows. Attention probabilities are those that eager
attention returns.

MODEL.json holds library versions, tokens, settings and the two losses as the papers
define them (LookaheadKV, arXiv:2603.10899, eq. 5; Judge Q, arXiv:2509.10798, eq. 5). MODEL.safetensors holds, as
float32,

  embeddings, lora_A / lora_B of layers.L.MODULE   the adapter
  target, lookaheadkv.scores, judgeq.scores        [caches, heads, prompt]
  lookaheadkv.grad.NAME                            gradient of the KL loss
  judgeq.grad.embeddings                           gradient of eq. 5 times the
                                                   number of prompt columns

Of NAME-experts the factors are those of the experts alone, of all experts of a layer below each other, and of rank 2.

Rotary pairs of GLM-4 are neighbours: rows of lora_B of its queries and keys stand in the order of halves that follow each other.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[2] / "model/testdata"
MODELS = ["llama3.1", "qwen3", "granite", "phi4-mini", "gemma2", "gemma3", "gpt-oss", "qwen3-moe", "qwen2-moe", "olmo2", "ministral3", "mixtral", "olmo3", "glm4", "glm4-moe",
          "mistral-v0.3", "qwen2-yarn", "seed-oss", "smollm3", "ministral", "falcon", "gemma4", "gemma4-e2b", "gemma4-moe", "qwen3-next", "lfm2", "qwen2-moe-experts"]
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"], "query_key_value": ["q_proj", "k_proj", "v_proj"]}
OWN_NAMES = {
    "falcon": {"o_proj": "dense", "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"},
    "lfm2": {"o_proj": "out_proj", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
}
RECURRENT = ("linear_attention", "conv")  # types of layers that do not attend
ROWS, RANK, ALPHA = 5, 3, 6.0
EXPERT_RANK = 2
SEEDS = {"smollm3": 2}  # the rows of seed 1 attend so sharply that single precision alone is off by more than tests allow


class MaskedLoRA(torch.nn.Module):
    """A frozen linear layer with a low-rank update of the last ROWS rows; out of its
    outputs get one, those from start on, or the first half of every head."""

    def __init__(self, base, generator, start=0, out=None, heads=0):
        super().__init__()
        self.base, self.start, self.heads, out, width = base, start, heads, out or base.out_features, base.in_features
        self.out_features, self.in_features = base.out_features, width
        draw = lambda *shape: torch.nn.Parameter((torch.randn(shape, generator=generator) * shape[1] ** -0.5).float().double())
        self.A, self.B = draw(RANK, width), draw(out, RANK)
        self.active = False

    def forward(self, x):
        y = self.base(x)
        if not self.active:
            return y
        mask = torch.zeros(x.shape[1], 1, dtype=x.dtype)
        mask[-ROWS:] = 1
        update = mask * (ALPHA / RANK) * (x @ self.A.T @ self.B.T)
        if self.heads:  # an output gate is behind every head's query
            dim = update.shape[-1] // self.heads
            return y + torch.nn.functional.pad(update.unflatten(-1, (self.heads, dim)), (0, dim)).flatten(-2)
        rest = y.shape[-1] - self.start - update.shape[-1]
        return y + torch.nn.functional.pad(update, (self.start, rest))


class ExpertLoRA(torch.nn.Module):
    """A linear layer of expert e, whose factors are a part of those of all experts."""

    def __init__(self, base, e, A, B):
        super().__init__()
        self.base, self.e, self.A, self.B, self.active = base, e, A, B, False

    def forward(self, x):
        y = self.base(x)
        if not self.active:
            return y
        out = self.base.out_features
        A, B = self.A[self.e * EXPERT_RANK :][:EXPERT_RANK], self.B[self.e * out :][:out]
        return y + (ALPHA / EXPERT_RANK) * (x @ A.T @ B.T)


class MaskedExperts(torch.nn.Module):
    """Experts of which the last ROWS rows have low-rank updates: rows go through them without a look at others."""

    def __init__(self, base, generator):
        super().__init__()
        self.base, self.active, self.linears, self.factors = base, False, [], {}
        for module in "gate_proj", "up_proj", "down_proj":
            first = getattr(base.experts[0], module)
            draw = lambda *shape: torch.nn.Parameter((torch.randn(shape, generator=generator) * shape[1] ** -0.5).float().double())
            A, B = draw(len(base.experts) * EXPERT_RANK, first.in_features), draw(len(base.experts) * first.out_features, EXPERT_RANK)
            self.factors[module] = A, B
            for e, expert in enumerate(base.experts):
                self.linears.append(ExpertLoRA(getattr(expert, module), e, A, B))
                setattr(expert, module, self.linears[-1])

    def forward(self, h):
        parts = (h[:, :-ROWS], h[:, -ROWS:]) if self.active else (h,)
        out = []
        for part in parts:
            for linear in self.linears:
                linear.active = self.active and len(out) == 1
            out.append(self.base(part)[0])
        return torch.cat(out, 1), None


def caches(config, types):
    """The layers whose attention goes to each cache, by the layers that hold them: of those that attend."""
    modes = getattr(config, "kv_sharing_modes", None) or [None] * len(types)
    own = [i for i, mode in enumerate(modes) if mode != "reuse"]
    holder = lambda i: i if i in own else max(j for j in own if types[j] == types[i])
    attending = [i for i, kind in enumerate(types) if kind not in RECURRENT]
    return {i: [at for at, j in enumerate(attending) if holder(j) == i] for i in attending if i in own}


def attention_scores(model, readers, rows, columns, **inputs):
    """Mean over the last rows, and over the layers that read a cache, of the probabilities on the first columns,
    [caches, heads, columns]."""
    attentions = model(**inputs, output_attentions=True, use_cache=False).attentions
    each = torch.cat(attentions)[:, :, -rows:, :columns].mean(2)
    return torch.stack([each[layers].mean(0) for layers in readers.values()])


def rows_of(config, modules):
    """The rows of the parts of a fused weight."""
    dim = config.hidden_size // config.num_attention_heads
    kv = 1 if config.model_type == "falcon" else config.num_key_value_heads
    rows = {"q_proj": config.num_attention_heads * dim, "k_proj": kv * dim}
    rows["v_proj"] = rows["k_proj"]
    return [rows[m] if m in rows else config.intermediate_size for m in modules]


def halves(config, t):
    """Rows of queries or keys whose rotary pairs are neighbours, by halves."""
    dim = config.head_dim
    rotated = int(dim * config.rope_parameters["partial_rotary_factor"])
    order = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, dim)]
    return t.reshape(-1, dim, t.shape[-1])[:, order].reshape(t.shape)


def build(name):
    out_name, name = name, name.removesuffix("-experts")
    experts = out_name != name
    folder = ROOT / "golden" / name
    golden = json.loads((folder / "golden.json").read_text())
    prompt, response = golden["prompts"][1]["ids"], golden["prompts"][1]["greedy"]
    n, m = len(prompt), len(response)
    others = dict(experts_implementation="eager") if name in ("gpt-oss", "mixtral", "glm4-moe", "qwen3-next", "gemma4-moe") else {}  # whose other products take no float64
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **others).double().eval()
    model.requires_grad_(False)
    layers = model.transformer.h if name == "falcon" else model.model.layers
    # The losses are of the caches that hold the whole prompt.
    types = getattr(model.config, "layer_types", None) or ["full_attention"] * len(layers)
    readers = caches(model.config, types)
    whole = [at for at, i in enumerate(readers) if types[i] == "full_attention"]
    with torch.no_grad():
        target = attention_scores(model, readers, m, n, input_ids=torch.tensor([prompt + response]))

    generator = torch.Generator().manual_seed(SEEDS.get(name, 1))
    lora, parameters = {}, {}
    for i, layer in enumerate(layers):
        if experts:
            layer.mlp = lora[f"layers.{i}"] = MaskedExperts(layer.mlp, generator)
            for module, (A, B) in layer.mlp.factors.items():
                parameters |= {f"layers.{i}.experts.{module}.lora_A": A, f"layers.{i}.experts.{module}.lora_B": B}
            continue
        attention = layer.self_attention if name == "falcon" else getattr(layer, "self_attn", None)
        mlp = layer.feed_forward if name == "lfm2" else layer.mlp
        for module in MODULES:
            stored, start, out = OWN_NAMES.get(name, {}).get(module, module), 0, None
            heads = 0
            for fused, parts in FUSED.items():
                if module in parts and (hasattr(attention, fused) or hasattr(mlp, fused)):
                    sizes = rows_of(model.config, parts)
                    at = parts.index(module)
                    stored, start, out = fused, sum(sizes[:at]), sizes[at]
            parent = attention if hasattr(attention, stored) else mlp
            if getattr(parent, stored, None) is None:  # experts have none, delta nets neither, nor has an MLP without a gate
                continue
            if module == "q_proj" and model.config.model_type == "qwen3_next":
                heads = model.config.num_attention_heads
                out = heads * model.config.head_dim
            lora[f"layers.{i}.{module}"] = MaskedLoRA(getattr(parent, stored), generator, start, out, heads)
            setattr(parent, stored, lora[f"layers.{i}.{module}"])
    table = model.get_input_embeddings()
    scale = table.weight.std()
    embeddings = torch.nn.Parameter((scale * torch.randn(ROWS, table.embedding_dim, generator=generator)).float().double())
    parameters = {"embeddings": embeddings} | parameters
    for at, l in lora.items():
        if experts:
            break
        parameters |= {f"{at}.lora_A": l.A, f"{at}.lora_B": l.B}

    def step(loss_of, active):
        for l in lora.values():
            l.active = active
        for p in parameters.values():
            p.grad = None
        # Gemma's table multiplies what it gives; rows are as they are stored.
        x = torch.cat([table(torch.tensor([prompt])), getattr(table, "scalar_embed_scale", 1.0) * embeddings[None]], 1)
        inputs = dict(inputs_embeds=x)
        if getattr(model.config, "hidden_size_per_layer_input", 0):  # learned rows have the padding token's, as rows of images do
            ids = torch.tensor([prompt + [model.config.pad_token_id] * ROWS])
            inputs["per_layer_inputs"] = model.model.get_per_layer_inputs(ids, None)
        scores = attention_scores(model, readers, ROWS, n, **inputs)
        loss, minimised = loss_of(scores)
        minimised.backward()
        return loss.item(), scores.detach(), {k: p.grad.clone() for k, p in parameters.items() if p.grad is not None}

    everywhere, target = target, target[whole]

    def kl(scores):
        scores = scores[whole]
        p, q = target / target.sum(-1, keepdim=True), scores / scores.sum(-1, keepdim=True)
        loss = (p * (p.log() - q.log())).sum(-1).mean()
        return loss, loss

    def mse(scores):
        loss = ((target - scores[whole]) ** 2).mean()
        return loss, loss * n

    kl_loss, kl_scores, kl_grads = step(kl, True)
    mse_loss, mse_scores, mse_grads = step(mse, False)
    # What the last layer computes after its scores has no effect on them.
    dead = [k for k, g in kl_grads.items() if g.abs().max() == 0]
    absent = sorted(set(parameters) - set(kl_grads)) + dead
    attending = [i for i, kind in enumerate(types) if kind not in RECURRENT]
    last = max(attending[at] for w in whole for at in list(readers.values())[w])
    layer = lambda k: int(k.split(".")[1]) if k.startswith("layers.") else -1
    assert sorted(absent) == sorted(k for k in parameters if layer(k) > last or layer(k) == last and ".q_proj" not in k and ".k_proj" not in k), absent
    assert set(k for k, g in mse_grads.items() if g.abs().max() > 0) == {"embeddings"}

    tensors = {k: p.detach() for k, p in parameters.items() if k not in absent}
    tensors |= {"target": everywhere, "lookaheadkv.scores": kl_scores, "judgeq.scores": mse_scores}
    tensors |= {f"lookaheadkv.grad.{k}": g for k, g in kl_grads.items() if k not in absent}
    tensors["judgeq.grad.embeddings"] = mse_grads["embeddings"]
    if name == "glm4":
        tensors = {k: halves(model.config, t) if k.endswith(("q_proj.lora_B", "k_proj.lora_B")) else t for k, t in tensors.items()}
    out = ROOT / "golden_training"
    out.mkdir(exist_ok=True)
    save_file({k: np.ascontiguousarray(t.float().numpy()) for k, t in tensors.items()}, out / f"{out_name}.safetensors")
    (out / f"{out_name}.safetensors").chmod(0o644)
    (out / f"{out_name}.json").write_text(json.dumps({
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, np)},
        "model": name, "prompt": prompt, "response": response, "rows": ROWS, "rank": EXPERT_RANK if experts else RANK, "alpha": ALPHA,
        "lookaheadkv_loss": kl_loss, "judgeq_loss": mse_loss}) + "\n")
    print(f"{out_name}: KL {kl_loss:.6f}, MSE {mse_loss:.3g}, {len(kl_grads) - len(dead)} gradients, "
          f"{(out / f'{out_name}.safetensors').stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        build(name)
