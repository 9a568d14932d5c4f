"""A Llama forward pass in numpy, for checking the Go one against.

It is written from the architecture's definition, shares no code with the Go
packages, and reads only what Hugging Face folders hold. The data type decides
the precision: float64 is the judge, float32 is faster.
"""

import json
import os

import numpy as np


def read_safetensors(path):
    """Return {name: float64 array} of a bfloat16 safetensors file."""
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            raise ValueError(f"{path}: {name}: dtype {entry['dtype']}, want BF16")
        begin, end = (8 + size + o for o in entry["data_offsets"])
        upper = np.frombuffer(data[begin:end], "<u2").astype(np.uint32)
        tensors[name] = (upper << 16).view(np.float32).reshape(entry["shape"]).astype(np.float64)
    return tensors


class Model:
    """A model folder with a growing KV cache."""

    def __init__(self, folder, dtype):
        self.config = json.load(open(os.path.join(folder, "config.json")))
        self.eos = json.load(open(os.path.join(folder, "generation_config.json")))["eos_token_id"]
        tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
        self.weights = {name: t.astype(dtype) for name, t in tensors.items()}
        self.dtype = dtype
        self.reset()

    def reset(self):
        layers = self.config["num_hidden_layers"]
        self.keys, self.values, self.position = [None] * layers, [None] * layers, 0

    def norm(self, x, name):
        scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return x * scale * self.weights[name]

    def rotate(self, x, positions):
        """Rotary embedding of x [tokens, heads, head_dim], halves rotated."""
        half = x.shape[-1] // 2
        frequencies = self.config["rope_theta"] ** (-np.arange(half) / half)
        angles = np.outer(positions, frequencies)[:, None]
        cos, sin = np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(self, layer, x, positions):
        c, prefix = self.config, f"model.layers.{layer}.self_attn."
        heads, kv_heads, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]

        def project(name, n):
            return (x @ self.weights[f"{prefix}{name}_proj.weight"].T).reshape(len(x), n, d)

        q = self.rotate(project("q", heads), positions)
        k, v = self.rotate(project("k", kv_heads), positions), project("v", kv_heads)
        if self.keys[layer] is not None:
            k, v = np.concatenate([self.keys[layer], k]), np.concatenate([self.values[layer], v])
        self.keys[layer], self.values[layer] = k, v
        future = np.arange(len(k))[None] > positions[:, None]
        out = np.empty((len(x), heads, d), self.dtype)
        for h in range(heads):
            g = h // (heads // kv_heads)
            scores = q[:, h] @ k[:, g].T / self.dtype(np.sqrt(d))
            scores[future] = -np.inf
            p = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, g]
        return out.reshape(len(x), -1) @ self.weights[prefix + "o_proj.weight"].T

    def mlp(self, layer, x):
        gate, up, down = (self.weights[f"model.layers.{layer}.mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
        g = x @ gate.T
        return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T

    def forward(self, ids):
        """Append ids to the cache; return the logits [vocab] after the last."""
        positions = np.arange(self.position, self.position + len(ids))
        self.position += len(ids)
        x = self.weights["model.embed_tokens.weight"][np.asarray(ids)]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            x = x + self.attention(layer, self.norm(x, name + "input_layernorm.weight"), positions)
            x = x + self.mlp(layer, self.norm(x, name + "post_attention_layernorm.weight"))
        return self.weights["lm_head.weight"] @ self.norm(x[-1], "model.norm.weight")

    def greedy(self, prompt, limit):
        """Return the logits after the prompt, the greedy answer of at most limit
        tokens without the end token, and the logits that ended it."""
        self.reset()
        first = logits = self.forward(prompt)
        answer = []
        while (token := int(logits.argmax())) != self.eos and len(answer) < limit:
            answer.append(token)
            logits = self.forward([token])
        return first, answer, logits
