"""The layers of network.py as one operation in C++ (layers/), for processors with
products of bfloat16."""

import glob
import hashlib
import os
import subprocess

import torch
import torch.nn.functional as F
from torch.utils import cpp_extension

import network

# The weights of a layer in the order that layers.cpp has.
NAMES = ("q", "k", "v", "o", "g", "u", "w", "n1", "n2")
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers")
FLAGS = ("-std=c++20", "-O3", "-march=sapphirerapids", "-fopenmp", "-fPIC", "-shared")


def build(folder):
    """Compile layers/ into a folder, if it is not there, and load it. Returns None, or why
    that can't be."""
    if not torch.cpu._is_avx512_bf16_supported():
        return "the processor has no products of bfloat16 (AVX512_BF16)"
    state = hashlib.sha256(f"{torch.__version__} {FLAGS}".encode())
    for path in sorted(glob.glob(os.path.join(FOLDER, "*"))):
        with open(path, "rb") as f:
            state.update(f.read())
    library = os.path.join(folder, f"layers-{state.hexdigest()[:16]}.so")
    if not os.path.exists(library):
        os.makedirs(folder, exist_ok=True)
        made = f"{library}.{os.getpid()}"
        command = [os.environ.get("CXX", "c++"), *FLAGS, os.path.join(FOLDER, "layers.cpp"), "-o", made, "-ltorch_cpu", "-lc10",
                   *(f"-isystem{d}" for d in cpp_extension.include_paths()), *(f"-L{d}" for d in cpp_extension.library_paths())]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            return f"{command[0]} is not there to compile the layers"
        except subprocess.CalledProcessError as e:
            errors = [line for line in e.stderr.splitlines() if "error" in line] or [str(e)]
            return f"the layers can't be compiled: {errors[0]}"
        os.replace(made, library)
    torch.ops.load_library(library)
    return None


def clip(parameters, most):
    """torch.nn.utils.clip_grad_norm_."""
    return torch.ops.reference_model.clip([p.grad for p in parameters], most)


def muon(*arguments):
    torch.ops.reference_model.muon(*arguments)


class Layers(torch.autograd.Function):
    """Hidden states [tokens, d] of embeddings [tokens, d]."""

    @staticmethod
    def forward(ctx, x, cos, sin, shape, keep, *weights):
        out, ctx.number = torch.ops.reference_model.forward(x, cos, sin, *shape, keep, weights)
        ctx.save_for_backward(cos, sin, *weights)
        ctx.shape = shape
        return out

    @staticmethod
    def backward(ctx, gradient):
        cos, sin, *weights = ctx.saved_tensors
        dx, *gradients = torch.ops.reference_model.backward(gradient.contiguous(), cos, sin, *ctx.shape, ctx.number, weights)
        return dx, None, None, None, None, *gradients


def hidden(p, c, ids, *_):
    """network.hidden with attention, too, in bfloat16. Only the last call has a backward
    pass: the next one overwrites what it saved."""
    rows, columns = ids.shape
    cos, sin = network.rotary(torch.arange(columns, dtype=torch.float32), c)
    x = F.embedding(ids.reshape(-1), p["emb"])
    weights = [p[f"{l}_{n}"] for l in range(c["nl"]) for n in NAMES]
    out = Layers.apply(x, cos, sin, (rows, c["nh"], c["nkv"], c["eps"]), torch.is_grad_enabled(), *weights)
    return out.view(rows, columns, -1)
