#!/usr/bin/env python3
"""Makes what the formats of weights and the reader of GGUF files are held against.

    pip install gguf==0.19.0 numpy ml_dtypes==0.6.0
    python3 lab/golden/golden_gguf.py

kernels/formats/testdata/blocks.zip      of each format: blocks, and the float32 numbers that
                                         gguf.quants.dequantize makes of them; of those that ggml does
                                         not have, ml_dtypes
kernels/formats/testdata/narrow.zip      of each format that is written: float32 numbers, and the
                                         blocks that gguf.quants.quantize makes of them, or ml_dtypes
model/gguf/testdata/blocks.gguf          a small Llama of random numbers, each module in another format of blocks
checkpoints/gguf/testdata/all.gguf       every type of metadata, a tensor of every format
checkpoints/gguf/testdata/split-*.gguf   the same tensors in several files
checkpoints/gguf/testdata/all.safetensors  these tensors as a model gets them: plain ones as they
                                         are, others in bfloat16; "q" and "q.bias" with rows in
                                         Hugging Face's order
"""

import json
import struct
import warnings
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES

ROOT = Path(__file__).resolve().parents[2]
rng = np.random.default_rng(1)
warnings.filterwarnings("ignore", category=RuntimeWarning)  # of infinities times zero

# Where the half-precision scales of a block are.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "IQ4_XS": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "TQ1_0": [52], "TQ2_0": [64],
}
# Where the scales of 8 bits are.
BYTES = {"MXFP4": [0], "NVFP4": [0, 1, 2, 3]}
PLAIN = ["F32", "F16", "BF16"]
# Zeros, subnormals, the least and the largest normal numbers, one, infinities and NaN.
EXTREME = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0x3C00, 0x7C00, 0xFC00, 0x7E00]
EXTREME_BYTES = [0, 1, 2, 3, 8, 0x7E, 0x7F, 0x80, 0xFE, 0xFF]


def random_blocks(name, n):
    return rng.integers(0, 256, (n, GGML_QUANT_SIZES[Type[name]][1]), dtype=np.uint8)


def blocks(name):
    """Blocks of random bytes, of extreme scales, and of scales as weights have them."""
    if name == "F32":
        extreme = np.array([v << 16 for v in EXTREME] + [1, 0x7F800000, 0x7F7FFFFF], np.uint32)
        return np.concatenate([extreme.view(np.uint8), random_blocks(name, 100).ravel()])
    if name in PLAIN:
        extreme = EXTREME + [0x0080, 0x7F7F, 0x7F80, 0xFF80]  # the last four of bfloat16
        return np.concatenate([np.array(extreme, np.uint16).view(np.uint8), random_blocks(name, 100).ravel()])
    random, extreme, usual = random_blocks(name, 2), random_blocks(name, 10), random_blocks(name, 3)
    for at in HALVES.get(name, []):
        extreme[:, at:at + 2] = np.array(rng.permutation(EXTREME), np.uint16)[:, None].view(np.uint8)
        usual[:, at:at + 2] = rng.normal(0, 0.01, 3).astype(np.float16)[:, None].view(np.uint8)
    for at in BYTES.get(name, []):
        extreme[:, at] = rng.permutation(EXTREME_BYTES)
        usual[:, at] = rng.integers(110, 130, 3) if name == "MXFP4" else rng.integers(0x20, 0x50, 3)
    return np.concatenate([random, extreme, usual]).ravel()


def mxfp8_blocks():
    """All codes under a usual scale, and some under every extreme one."""
    data = np.empty((20, 33), np.uint8)
    data[:8, 0], data[:8, 1:] = 120, np.arange(256).reshape(8, 32)
    data[8:18, 0], data[18:, 0] = [0, 1, 2, 3, 8, 0x7E, 0x7F, 0xF6, 0xFE, 0xFF], [110, 125]
    data[8:, 1:] = np.random.default_rng(4).integers(0, 256, (12, 32))
    return data.ravel()


def mxfp8_values(data):
    data = data.reshape(-1, 33)
    scale, elements = data[:, :1].view(ml_dtypes.float8_e8m0fnu), np.ascontiguousarray(data[:, 1:]).view(ml_dtypes.float8_e4m3fn)
    return (elements.astype(np.float32) * scale.astype(np.float32)).ravel()


# Of the formats of Hugging Face: the types of scale and codes (None: 4 bits above a zero point); I8Z are bytes above one.
SCALED = {
    "E4M3_BF16": (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn), "E4M3_F32": (np.float32, ml_dtypes.float8_e4m3fn),
    "I4_BF16": (ml_dtypes.bfloat16, None), "I4_F16": (np.float16, None),
    "I8_BF16": (ml_dtypes.bfloat16, np.int8), "I8_F16": (np.float16, np.int8),
    "I8Z_BF16": (ml_dtypes.bfloat16, np.int8), "I8Z_F16": (np.float16, np.int8),
}
EXTREME_SCALES = [0.0, -0.0, 6e-8, 1e-7, 6.1e-5, 1.0, 300.0, 65504.0, -0.5, np.inf, np.nan]


def scaled_blocks(name):
    """Blocks of random codes under extreme and usual scales, and what they hold."""
    rng = np.random.default_rng(5)
    scale, code = SCALED[name]
    scales = np.concatenate([EXTREME_SCALES, rng.normal(0, 0.01, 13)]).astype(np.float32).astype(scale)[:, None]
    n, size = len(scales), np.dtype(scale).itemsize
    if code is None:
        zeros, codes = rng.integers(0, 17, (n, 1), dtype=np.uint8), rng.integers(0, 256, (n, 16), dtype=np.uint8)
        stored, numbers = np.concatenate([zeros, codes], axis=1), np.concatenate([codes & 15, codes >> 4], axis=1).astype(np.float32) - zeros
    else:
        stored = rng.integers(0, 256, (n, 32), dtype=np.uint8)
        stored[:8] = np.arange(256).reshape(8, 32)
        numbers = stored.view(code).astype(np.float32)
        if name.startswith("I8Z"):
            zeros = np.resize(np.array([-128, 127, 0, *range(-100, 100, 9)], np.int8), (n, 1))
            stored, numbers = np.concatenate([zeros.view(np.uint8), stored], axis=1), numbers - zeros
    values = numbers * scales.astype(np.float32)
    if scale == np.float16:
        values = values.astype(np.float16).astype(np.float32)
    return np.concatenate([scales.view(np.uint8).reshape(n, size), stored], axis=1).ravel(), values.ravel()


def e2m1_blocks():
    """Blocks of all codes under all scales but that of NaN, and what they hold: those of i and i+16 share a byte."""
    scales = np.array([0, 1, 2, 3, 100, 126, 127, 128, 252, 253, 254], np.uint8)[:, None]
    codes = np.resize(np.arange(256, dtype=np.uint8), (len(scales), 16))
    numbers = np.concatenate([codes & 15, codes >> 4], axis=1).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    with np.errstate(over="ignore"):
        values = numbers * scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    return np.concatenate([scales, codes], axis=1).ravel(), values.ravel()


def to_mxfp8(numbers):
    """The scale is the least power of two that leaves no number above 448."""
    top = np.abs(numbers).max(axis=1, keepdims=True).astype(np.float64)
    e = np.ceil(np.log2(np.where(top == 0, 2.0 ** -118, top) / 448)) + 127
    e = np.where(top == 0, 0, np.maximum(e, 0))
    elements = (numbers / np.exp2(e - 127)).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    return np.concatenate([e.astype(np.uint8), elements.view(np.uint8)], axis=1)


def write_blocks(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name in sorted([*PLAIN, *HALVES, *BYTES, *SCALED, "MXFP8", "E2M1_E8M0"]):
            if name in SCALED:
                data, values = scaled_blocks(name)
            elif name == "E2M1_E8M0":
                data, values = e2m1_blocks()
            else:
                data = mxfp8_blocks() if name == "MXFP8" else blocks(name)
                values = mxfp8_values(data) if name == "MXFP8" else quants.dequantize(data, Type[name])
            for what, raw in [("blocks", data), ("values", values.astype("<f4"))]:
                z.writestr(zipfile.ZipInfo(f"{name}.{what}"), raw.tobytes(), zipfile.ZIP_DEFLATED)


def usual_blocks(name, rows, width):
    """Rows of blocks whose scales are as weights have them."""
    elems, size = GGML_QUANT_SIZES[Type[name]]
    data = random_blocks(name, rows * width // elems)
    for at in HALVES.get(name, []):
        data[:, at:at + 2] = rng.normal(0, 0.01, len(data)).astype(np.float16)[:, None].view(np.uint8)
    for at in BYTES.get(name, []):
        data[:, at] = rng.integers(110, 130, len(data)) if name == "MXFP4" else rng.integers(0x20, 0x50, len(data))
    if name in PLAIN:
        values = rng.normal(0, 1, (rows, width)).astype(np.float32)
        data = quants.quantize(values, Type[name])
    return np.ascontiguousarray(data).reshape(rows, -1).view(np.uint8)


def bfloat16(values):
    return quants.quantize(np.ascontiguousarray(values, np.float32), Type.BF16).view(np.uint8)


def interleave(rows, heads):
    """LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write_files(folder):
    tensors, model = {}, {}
    for name in [*PLAIN, *HALVES, *BYTES]:
        data = usual_blocks(name, 2, 256)
        tensors[name] = (data, Type[name])
        raw = data if name in PLAIN else bfloat16(quants.dequantize(data, Type[name]))
        model[name] = (name if name in PLAIN else "BF16", [2, 256], raw)
    # 3 heads of 8.
    q, bias = usual_blocks("Q8_0", 24, 32), rng.normal(0, 1, 24).astype(np.float32)
    tensors["attn_q.weight"] = (interleave(q, 3), Type.Q8_0)
    tensors["attn_q.bias"] = (interleave(bias, 3).view(np.uint8), Type.F32)
    model["q"] = ("BF16", [24, 32], bfloat16(quants.dequantize(q, Type.Q8_0)))
    model["q.bias"] = ("F32", [24], bias.view(np.uint8))

    def write(path, **options):
        w = GGUFWriter(path, "llama", **options)
        w.add_uint8("u8", 200), w.add_int8("i8", -100), w.add_uint16("u16", 60000), w.add_int16("i16", -30000)
        w.add_uint32("u32", 4_000_000_000), w.add_int32("i32", -2_000_000_000)
        w.add_uint64("u64", 1 << 62), w.add_int64("i64", -(1 << 62))
        w.add_float32("f32", 1e-5), w.add_float64("f64", 0.1), w.add_bool("yes", True), w.add_bool("no", False)
        w.add_string("text", "Grüße\n")
        w.add_array("ints", [1, -2, 3]), w.add_array("floats", [0.5, -1.5]), w.add_array("bools", [True, False])
        w.add_array("strings", ["a", "", "日本"])
        for name, (data, kind) in tensors.items():
            w.add_tensor(name, data, raw_dtype=kind) if data.ndim > 1 else w.add_tensor(name, data.view(np.float32))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    for old in folder.glob("*.gguf"):
        old.unlink()
    write(folder / "all.gguf")
    write(folder / "split.gguf", split_max_tensors=8)

    header, payload = {}, b""
    for name, (dtype, shape, raw) in sorted(model.items()):
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[len(payload), len(payload) + raw.nbytes])
        payload += raw.tobytes()
    text = json.dumps(header).encode()
    (folder / "all.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)


def write_model(path):
    rng = np.random.default_rng(3)
    w = GGUFWriter(path, "llama")
    hidden, heads, kv, head, ffn, vocab, layers = 64, 2, 1, 32, 96, 48, 2
    w.add_block_count(layers), w.add_context_length(512), w.add_embedding_length(hidden), w.add_feed_forward_length(ffn)
    w.add_head_count(heads), w.add_head_count_kv(kv), w.add_rope_freq_base(10000.0), w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(head), w.add_vocab_size(vocab)
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("gpt-2"), w.add_token_list([chr(ord("0") + i) for i in range(vocab)])
    w.add_token_types([1] * vocab), w.add_token_merges(["0 1"]), w.add_eos_token_id(47)

    def matrix(name, out, width, kind):
        numbers = (rng.standard_normal((out, width)) / np.sqrt(width)).astype(np.float32)
        w.add_tensor(name, quants.quantize(numbers, Type[kind]), raw_dtype=Type[kind])

    def vector(name):
        w.add_tensor(name, (1 + rng.standard_normal(hidden) / 10).astype(np.float32))

    matrix("token_embd.weight", vocab, hidden, "Q8_0")
    matrix("output.weight", vocab, hidden, "Q5_1")
    vector("output_norm.weight")
    for layer in range(layers):
        at = f"blk.{layer}."
        vector(at + "attn_norm.weight")
        vector(at + "ffn_norm.weight")
        matrix(at + "attn_q.weight", heads * head, hidden, "Q4_0")
        matrix(at + "attn_k.weight", kv * head, hidden, "Q4_1")
        matrix(at + "attn_v.weight", kv * head, hidden, "Q5_0")
        matrix(at + "attn_output.weight", hidden, heads * head, "Q8_0")
        matrix(at + "ffn_gate.weight", ffn, hidden, "Q5_1")
        matrix(at + "ffn_up.weight", ffn, hidden, "Q4_1")
        matrix(at + "ffn_down.weight", hidden, ffn, "Q4_0")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_narrowed(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        rng = np.random.default_rng(2)
        numbers = (rng.standard_normal((64, 32)) * np.exp2(rng.integers(-20, 12, (64, 1)))).astype(np.float32)
        numbers[0] = 0
        numbers[1] = 1.5
        numbers[2] = np.arange(-16, 16)
        numbers[3] = np.arange(32) / 2 - 31  # ties
        numbers[4] = rng.integers(-127, 128, 32)
        numbers[4, 0] = -127
        archive.writestr(zipfile.ZipInfo("numbers"), numbers.tobytes(), zipfile.ZIP_DEFLATED)
        for name in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]:
            archive.writestr(zipfile.ZipInfo(name), quants.quantize(numbers, Type[name]).tobytes(), zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo("MXFP8"), to_mxfp8(numbers).tobytes(), zipfile.ZIP_DEFLATED)


write_model(ROOT / "model/gguf/testdata/blocks.gguf")
write_narrowed(ROOT / "kernels/formats/testdata/narrow.zip")
write_blocks(ROOT / "kernels/formats/testdata/blocks.zip")
write_files(ROOT / "checkpoints/gguf/testdata")
