#!/usr/bin/env python3
"""Makes model/testdata/golden_training: one LookaheadKV and one Judge Q step on
tiny models, written in the most straightforward way with PyTorch.

    pip install torch==2.8.0 transformers==4.57.1 safetensors==0.8.0 numpy
    python3 scripts/golden_training.py

For two of the models that golden_transformers.py made: a full pass of transformers
over prompt and response gives the target, a full pass over prompt and learned rows
the scores, and autograd goes through everything. LoRA wraps the linear layers and
is masked to the learned rows. Attention probabilities are those that eager
attention returns.

MODEL.json holds library versions, tokens, settings and the two losses as the papers
define them (lookaheadkv.txt eq. 5, judgeq.txt eq. 5). MODEL.safetensors holds, as
float32,

  embeddings, lora_A / lora_B of layers.L.MODULE   the adapter
  target, lookaheadkv.scores, judgeq.scores        [layers, heads, prompt]
  lookaheadkv.grad.NAME                            gradient of the KL loss
  judgeq.grad.embeddings                           gradient of eq. 5 times the
                                                   number of prompt columns
"""

import json
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parent.parent / "model/testdata"
MODELS = ["llama3.1", "qwen3"]
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ROWS, RANK, ALPHA = 5, 3, 6.0


class MaskedLoRA(torch.nn.Module):
    """A frozen linear layer with a low-rank update of the last ROWS rows."""

    def __init__(self, base, generator):
        super().__init__()
        self.base, out, width = base, base.out_features, base.in_features
        draw = lambda *shape: torch.nn.Parameter((torch.randn(shape, generator=generator) * shape[1] ** -0.5).float().double())
        self.A, self.B = draw(RANK, width), draw(out, RANK)
        self.active = False

    def forward(self, x):
        y = self.base(x)
        if not self.active:
            return y
        mask = torch.zeros(x.shape[1], 1, dtype=x.dtype)
        mask[-ROWS:] = 1
        return y + mask * (ALPHA / RANK) * (x @ self.A.T @ self.B.T)


def attention_scores(model, rows, columns, **inputs):
    """Mean over the last rows of the probabilities on the first columns,
    [layers, heads, columns]."""
    attentions = model(**inputs, output_attentions=True, use_cache=False).attentions
    return torch.cat(attentions)[:, :, -rows:, :columns].mean(2)


def build(name):
    folder = ROOT / "golden" / name
    golden = json.loads((folder / "golden.json").read_text())
    prompt, response = golden["prompts"][1]["ids"], golden["prompts"][1]["greedy"]
    n, m = len(prompt), len(response)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").double().eval()
    model.requires_grad_(False)
    with torch.no_grad():
        target = attention_scores(model, m, n, input_ids=torch.tensor([prompt + response]))

    generator = torch.Generator().manual_seed(1)
    lora = {}
    for i, layer in enumerate(model.model.layers):
        for module in MODULES:
            parent = layer.self_attn if hasattr(layer.self_attn, module) else layer.mlp
            lora[f"layers.{i}.{module}"] = MaskedLoRA(getattr(parent, module), generator)
            setattr(parent, module, lora[f"layers.{i}.{module}"])
    table = model.get_input_embeddings()
    scale = table.weight.std()
    embeddings = torch.nn.Parameter((scale * torch.randn(ROWS, table.embedding_dim, generator=generator)).float().double())
    parameters = {"embeddings": embeddings}
    for at, l in lora.items():
        parameters |= {f"{at}.lora_A": l.A, f"{at}.lora_B": l.B}

    def step(loss_of, active):
        for l in lora.values():
            l.active = active
        for p in parameters.values():
            p.grad = None
        x = torch.cat([table(torch.tensor([prompt])), embeddings[None]], 1)
        scores = attention_scores(model, ROWS, n, inputs_embeds=x)
        loss, minimised = loss_of(scores)
        minimised.backward()
        return loss.item(), scores.detach(), {k: p.grad.clone() for k, p in parameters.items() if p.grad is not None}

    def kl(scores):
        p, q = target / target.sum(-1, keepdim=True), scores / scores.sum(-1, keepdim=True)
        loss = (p * (p.log() - q.log())).sum(-1).mean()
        return loss, loss

    def mse(scores):
        loss = ((target - scores) ** 2).mean()
        return loss, loss * n

    kl_loss, kl_scores, kl_grads = step(kl, True)
    mse_loss, mse_scores, mse_grads = step(mse, False)
    # What the last layer computes after its scores has no effect on them.
    dead = [k for k, g in kl_grads.items() if g.abs().max() == 0]
    absent = sorted(set(parameters) - set(kl_grads)) + dead
    last = f"layers.{len(model.model.layers) - 1}."
    assert all(k.startswith(last) and ".q_proj" not in k and ".k_proj" not in k for k in absent) and len(absent) == 10, absent
    assert set(k for k, g in mse_grads.items() if g.abs().max() > 0) == {"embeddings"}

    tensors = {k: p.detach() for k, p in parameters.items() if k not in absent}
    tensors |= {"target": target, "lookaheadkv.scores": kl_scores, "judgeq.scores": mse_scores}
    tensors |= {f"lookaheadkv.grad.{k}": g for k, g in kl_grads.items() if k not in absent}
    tensors["judgeq.grad.embeddings"] = mse_grads["embeddings"]
    out = ROOT / "golden_training"
    out.mkdir(exist_ok=True)
    save_file({k: np.ascontiguousarray(t.float().numpy()) for k, t in tensors.items()}, out / f"{name}.safetensors")
    (out / f"{name}.safetensors").chmod(0o644)
    (out / f"{name}.json").write_text(json.dumps({
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, np)},
        "model": name, "prompt": prompt, "response": response, "rows": ROWS, "rank": RANK, "alpha": ALPHA,
        "lookaheadkv_loss": kl_loss, "judgeq_loss": mse_loss}) + "\n")
    print(f"{name}: KL {kl_loss:.6f}, MSE {mse_loss:.3g}, {len(kl_grads) - len(dead)} gradients, "
          f"{(out / f'{name}.safetensors').stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in MODELS:
        build(name)
