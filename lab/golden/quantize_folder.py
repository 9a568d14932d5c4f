#!/usr/bin/env python3
"""Quantises a Hugging Face folder in bf16 by rounding to nearest, to measure what is read of such folders with models
of real sizes. No calibration: the answers are worse than those of files that people publish.

    pip install numpy ml_dtypes
    python3 lab/golden/quantize_folder.py FOLDER OUT fp8|w4a16|int8|gptq|awq [GROUP]

GROUP are the columns that share a scale in 4 bits (64). Embeddings, norms and the head stay as they are.
"""

import json
import shutil
import struct
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

TYPES = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32, "I8": np.int8, "I32": np.int32, "I64": np.int64, "F8_E4M3": ml_dtypes.float8_e4m3fn}
NAMES = {np.dtype(t): name for name, t in TYPES.items()}


def load(path):
    data = np.memmap(path, np.uint8, "r")
    size = struct.unpack("<Q", data[:8].tobytes())[0]
    header = json.loads(data[8 : 8 + size].tobytes())
    header.pop("__metadata__", None)
    return {name: data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]].view(TYPES[t["dtype"]]).reshape(t["shape"]) for name, t in header.items()}


def save(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = dict(dtype=NAMES[t.dtype], shape=list(t.shape), data_offsets=[at, at := at + t.nbytes])
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(np.ascontiguousarray(t).tobytes())


def packed(codes, axis):
    """8 codes of 4 bits in a word, along an axis, the first in the low bits."""
    codes = np.moveaxis(codes.astype(np.uint32), axis, -1)
    words = (codes.reshape(*codes.shape[:-1], -1, 8) << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    return np.moveaxis(words, -1, axis).view(np.int32)


def four_bits(w, group, dtype):
    """Codes [rows, columns], scales and zero points [rows, groups]."""
    g = w.reshape(len(w), -1, group)
    low, high = np.minimum(g.min(-1), 0), np.maximum(g.max(-1), 0)
    scale = np.maximum((high - low) / 15, 1e-6).astype(dtype)
    zero = np.clip(np.rint(-low / scale.astype(np.float32)), 0, 15)
    codes = np.clip(np.rint(g / scale.astype(np.float32)[..., None]) + zero[..., None], 0, 15)
    return codes.reshape(w.shape), scale, zero


def fp8(w, _):
    rows, cols = -(-w.shape[0] // 128), -(-w.shape[1] // 128)
    wide = np.zeros((128 * rows, 128 * cols), np.float32)
    wide[: w.shape[0], : w.shape[1]] = np.abs(w)
    scale = (wide.reshape(rows, 128, cols, 128).max((1, 3)) / 448).astype(np.float32)
    codes = w / np.repeat(np.repeat(scale, 128, 0), 128, 1)[: w.shape[0], : w.shape[1]]
    return dict(weight=codes.astype(ml_dtypes.float8_e4m3fn), weight_scale_inv=scale)


def int8(w, _):
    scale = (np.abs(w).max(1, keepdims=True) / 127).astype(ml_dtypes.bfloat16)
    return dict(weight=np.clip(np.rint(w / scale.astype(np.float32)), -127, 127).astype(np.int8), weight_scale=scale)


def w4a16(w, group):
    codes, scale, zero = four_bits(w, group, ml_dtypes.bfloat16)
    return dict(weight_packed=packed(codes, 1), weight_scale=scale, weight_zero_point=packed(zero, 0), weight_shape=np.array(w.shape, np.int64))


def gptq(w, group):
    codes, scale, zero = four_bits(w, group, np.float16)
    return dict(qweight=packed(codes.T, 0), qzeros=packed((zero.T - 1) % 16, 1), scales=scale.T.copy(), g_idx=(np.arange(w.shape[1]) // group).astype(np.int32))


def awq(w, group):
    codes, scale, zero = four_bits(w, group, np.float16)
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    def in_order(x):
        return packed(x.reshape(len(x), -1, 8)[..., order].reshape(x.shape), 1)
    return dict(qweight=in_order(codes.T), qzeros=in_order(zero.T), scales=scale.T.copy())


def compressed(form, **weights):
    return lambda group: dict(quant_method="compressed-tensors", format=form, ignore=["lm_head"], config_groups=dict(group_0=dict(targets=["Linear"], weights=dict(weights, group_size=group) if "symmetric" in weights else weights)))


KINDS = {
    "fp8": (fp8, lambda group: dict(quant_method="fp8", weight_block_size=[128, 128])),
    "int8": (int8, compressed("int-quantized", num_bits=8, type="int", strategy="channel")),
    "w4a16": (w4a16, compressed("pack-quantized", num_bits=4, type="int", symmetric=False, strategy="group")),
    "gptq": (gptq, lambda group: dict(quant_method="gptq", bits=4, group_size=group, desc_act=False)),
    "awq": (awq, lambda group: dict(quant_method="awq", bits=4, group_size=group, version="gemm", zero_point=True)),
}


def main():
    folder, out, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    group = int(sys.argv[4]) if len(sys.argv) > 4 else 64
    quantise, config = KINDS[kind]
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.safetensors*"))
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, t in load(path).items():
            if name.endswith("_proj.weight"):
                parts = quantise(t.astype(np.float32), group)
                tensors.update({name.removesuffix("weight") + part: x for part, x in parts.items()})
            else:
                tensors[name] = t
    save(out / "model.safetensors", tensors)
    settings = json.loads((folder / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(dict(settings, quantization_config=config(group)), indent=1))


main()
