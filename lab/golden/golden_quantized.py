#!/usr/bin/env python3
"""Makes what package checkpoints/quantized is held against, in its testdata/.

    pip install torch==2.15.0 transformers==5.24.0 compressed-tensors==0.20.0 gptqmodel==7.7.0
    pip install --no-deps --target old compressed-tensors==0.12.2   # the last that reads weight_g_idx
    python3 lab/golden/golden_quantized.py old

modules.zip  cases: a module X in every layout, CASE/config.json its quantization_config,
             CASE/model.safetensors what is stored, CASE/want.safetensors X.weight [out, in], or
             the weights of experts, in bfloat16 as the layout's own package widens it
llama.zip    a tiny Llama of every kind, KIND/config.json and KIND/model.safetensors, and
             KIND/widened.safetensors with the weights that the package makes of it

The packages are transformers (fp8, mxfp4), compressed-tensors and gptqmodel (gptq and awq, whose
dequantize_gemm is AutoAWQ's). None of them needs a GPU for it.
"""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm, pack_awq
from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module
from safetensors.torch import load_file, save, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, _dequantize_fp8_weight
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

OUT = Path(__file__).resolve().parents[2] / "checkpoints/quantized/testdata"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# What a scale can be at worst: the least and the largest numbers, and those whose products overflow.
EXTREME = [0.0, 6e-8, 1e-7, 6.1e-5, 1.0, 300.0, 65504.0, -0.5]
g = torch.Generator().manual_seed(1)


def codes(rows, cols, low, high):
    """All codes in turn, which is small when it is compressed."""
    return (torch.arange(rows * cols) % (high - low) + low).reshape(rows, cols)


def scales(dtype, *shape):
    s = torch.rand(shape, generator=g) * 0.05 + 0.001
    flat = s.view(-1)
    if len(flat) > 2 * len(EXTREME):
        flat[: len(EXTREME)] = torch.tensor(EXTREME)
    return s.to(DTYPES[dtype])


def fp8_weight(rows, cols):
    return codes(rows, cols, 0, 256).to(torch.uint8).view(torch.float8_e4m3fn)


def fp8(weight, scale, block):
    """The widened weight: what loading computes, which refuses ragged blocks, or else what training does."""
    config = dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=block)
    stored = {"X.weight": weight, "X.weight_scale_inv": scale}
    rows, cols = weight.shape
    if block and (rows % block[0] or cols % block[1]):
        want = _dequantize_fp8_weight(weight, scale, block, torch.float32).to(torch.bfloat16)
    else:
        want = Fp8Dequantize(None)._dequantize_one(weight, scale, output_dtype=torch.bfloat16)
    return config, stored, want


def compressed(fmt, stored, **weights):
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights), format=fmt)
    group = json.loads(scheme.model_dump_json())
    config = dict(quant_method="compressed-tensors", format=fmt, config_groups=dict(group_0=group), ignore=["lm_head"])
    want = BaseCompressor.get_value_from_registry(fmt).decompress(stored, scheme)["weight"]
    return config, {"X." + k: v for k, v in stored.items()}, want.to(torch.bfloat16)


def packed(q, bits, scale, zero=None, **weights):
    stored = dict(weight_packed=pack_to_int32(q.to(torch.int8), bits), weight_scale=scale, weight_shape=torch.tensor(q.shape))
    if zero is not None:
        pack = weights["strategy"] in ("group", "channel")
        stored["weight_zero_point"] = pack_to_int32(zero, bits, packed_dim=0).contiguous() if pack else zero
    return compressed("pack-quantized", stored, num_bits=bits, type="int", symmetric=zero is None, **weights)


OLD = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from safetensors.torch import load_file, save_file
from compressed_tensors.compressors.quantized_compressors.pack_quantized import unpack_from_int32
from compressed_tensors.quantization.lifecycle.forward import dequantize
t = load_file(sys.argv[2])
q = unpack_from_int32(t["X.weight_packed"], 4, torch.Size(t["X.weight_shape"]))
save_file({"want": dequantize(q, t["X.weight_scale"], g_idx=t["X.weight_g_idx"])}, sys.argv[2])
"""


def packed_order(old, q, scale, order, size):
    config, stored, _ = packed(q, 4, scale, strategy="group", group_size=size)
    config["config_groups"]["group_0"]["weights"]["actorder"] = "group"
    stored["X.weight_g_idx"] = order
    path = OUT / "order.tmp"
    save_file(stored, path)
    subprocess.run([sys.executable, "-c", OLD, old, path], check=True)
    want = load_file(path)["want"]
    path.unlink()
    return config, stored, want.to(torch.bfloat16)


def gptq(bits, size, inputs, outputs, order=None, fmt="gptq", dtype="f16", q=None, scale=None, zeros=None):
    sym, groups = q is not None, inputs // (size if size > 0 else inputs)
    m = TorchLinear(bits=bits, group_size=size, sym=sym, desc_act=order is not None, in_features=inputs, out_features=outputs, bias=False, pack_dtype=torch.int32)
    m.eval()
    words = lambda rows, cols: torch.randint(-(2**31), 2**31 - 1, (rows, cols), generator=g).to(torch.int32)
    m.qweight = words(inputs * bits // 32, outputs) if q is None else q
    m.qzeros = words(groups, outputs * bits // 32) if zeros is None else zeros
    m.scales = scales(dtype, groups, outputs) if scale is None else scale
    if order is not None:
        m.g_idx = order.to(torch.int32)
    stored = {f"X.{k}": getattr(m, k).clone() for k in ("qweight", "qzeros", "scales", "g_idx")}
    if fmt == "gptq":
        convert_gptq_v1_to_v2_format_module(m, bits, torch.int32)
    config = dict(quant_method="gptq", bits=bits, group_size=size, desc_act=order is not None, sym=sym, checkpoint_format=fmt)
    return config, stored, m.dequantize_weight().t().to(torch.bfloat16).contiguous()


def awq(size, q, zeros, scale):
    """q [in, out] and zeros [groups, out] are codes."""
    qweight, qzeros = pack_awq(q, zeros, 4)
    config = dict(quant_method="awq", bits=4, group_size=size, zero_point=True, version="gemm", modules_to_not_convert=["lm_head"])
    want = dequantize_gemm(qweight, qzeros, scale, 4, size if size > 0 else len(q)).t().to(torch.bfloat16).contiguous()
    return config, {"X.qweight": qweight, "X.qzeros": qzeros, "X.scales": scale}, want


def modules(old):
    for dtype in DTYPES:
        yield f"fp8 {dtype}", fp8(fp8_weight(48, 32), scales(dtype, 6, 8), [8, 4])
        yield f"float channel {dtype}", compressed("float-quantized", dict(weight=fp8_weight(24, 33), weight_scale=scales(dtype, 24, 1)), num_bits=8, type="float", strategy="channel")
        yield f"int channel {dtype}", compressed("int-quantized", dict(weight=codes(24, 33, -128, 128).to(torch.int8), weight_scale=scales(dtype, 24, 1)), num_bits=8, type="int", strategy="channel")
        yield f"pack 4 group {dtype}", packed(codes(20, 32, -8, 8), 4, scales(dtype, 20, 4), strategy="group", group_size=8)
        yield f"gptq {dtype}", gptq(4, 32, 64, 32, dtype=dtype)
    yield "fp8 ragged", fp8(fp8_weight(130, 150), scales("f32", 2, 2), [128, 128])
    yield "fp8 tensor", fp8(fp8_weight(17, 31), torch.tensor(0.37), None)
    yield "float tensor", compressed("float-quantized", dict(weight=fp8_weight(16, 32), weight_scale=scales("bf16", 1)), num_bits=8, type="float", strategy="tensor")
    yield "float block ragged", compressed("float-quantized", dict(weight=fp8_weight(20, 36), weight_scale=scales("bf16", 3, 3)), num_bits=8, type="float", strategy="block", block_structure=[8, 16])
    q, zero = codes(24, 33, -128, 128).to(torch.int8), codes(24, 1, -100, 110).to(torch.int8)
    yield "int channel zero", compressed("int-quantized", dict(weight=q, weight_scale=scales("bf16", 24, 1), weight_zero_point=zero), num_bits=8, type="int", strategy="channel", symmetric=False)
    yield "int tensor zero", compressed("int-quantized", dict(weight=q, weight_scale=scales("f16", 1), weight_zero_point=zero[:1, 0]), num_bits=8, type="int", strategy="tensor", symmetric=False)
    yield "int group", compressed("int-quantized", dict(weight=q, weight_scale=scales("f32", 24, 3)), num_bits=8, type="int", strategy="group", group_size=11)
    yield "pack 4 odd", packed(codes(5, 33, -8, 8), 4, scales("bf16", 5, 3), strategy="group", group_size=11)
    yield "pack 4 tensor", packed(codes(5, 21, -8, 8), 4, scales("bf16", 1), strategy="tensor")
    yield "pack 4 channel zero", packed(codes(21, 32, -8, 8), 4, scales("bf16", 21, 1), codes(21, 1, -8, 8).to(torch.int8), strategy="channel")
    yield "pack 4 group zero", packed(codes(21, 32, -8, 8), 4, scales("f16", 21, 4), codes(21, 4, -8, 8).to(torch.int8), strategy="group", group_size=8)
    yield "pack 8 channel", packed(codes(9, 33, -128, 128), 8, scales("bf16", 9, 1), strategy="channel")
    yield "pack 8 group zero", packed(codes(9, 32, -128, 128), 8, scales("f16", 9, 2), codes(9, 2, -128, 128).to(torch.int8), strategy="group", group_size=16)
    order = (torch.randperm(32, generator=g) // 8).to(torch.int32)
    yield "pack 4 order", packed_order(old, codes(20, 32, -8, 8), scales("bf16", 20, 4), order, 8)
    yield "pack 4 order none", packed_order(old, codes(20, 32, -8, 8), scales("bf16", 20, 4), torch.full_like(order, -1), 8)
    yield "gptq v2", gptq(4, 32, 64, 32, fmt="gptq_v2")
    yield "gptq 8", gptq(8, 32, 64, 32)
    yield "gptq 2", gptq(2, 32, 64, 32)
    yield "gptq column", gptq(4, -1, 64, 32)
    yield "gptq order", gptq(4, 16, 64, 32, order=torch.randint(0, 4, (64,), generator=g))
    # More than a tile of inputs and outputs, some of which are alike.
    words = lambda rows, cols: torch.randint(-(2**31), 2**31 - 1, (rows, cols), generator=g).to(torch.int32).repeat(1, 4)
    yield "gptq wide", gptq(4, 32, 96, 160, q=words(12, 40), zeros=words(3, 5), scale=scales("f16", 3, 40).repeat(1, 4))
    q, zeros = torch.randint(0, 16, (64, 24), generator=g), torch.randint(0, 16, (4, 24), generator=g)
    yield "awq", awq(16, q, zeros, scales("f16", 4, 24))
    yield "awq column", awq(-1, q, zeros[:1], scales("f16", 1, 24))
    tiles = lambda rows: torch.randint(0, 16, (rows, 24), generator=g).repeat(1, 6)
    yield "awq wide", awq(32, tiles(96), tiles(3), scales("f16", 3, 24).repeat(1, 6))
    state = g.get_state()
    yield from blocks(old)
    g.set_state(state)


def blocks(old):
    """Cases whose groups are of 32 columns, in order or not, which processors keep in blocks."""
    order = lambda columns: (torch.randperm(columns, generator=g) // 32).to(torch.int32)
    for bits in (2, 4, 8):
        yield f"gptq {bits} order blocks", gptq(bits, 32, 96, 32, order=order(96))
    yield "gptq 8 blocks bf16", gptq(8, 32, 64, 32, dtype="bf16")
    yield "pack 4 order blocks", packed_order(old, codes(20, 96, -8, 8), scales("bf16", 20, 3), order(96), 32)
    q, zero = codes(9, 64, -128, 128), codes(9, 2, -128, 128).to(torch.int8)
    yield "pack 8 group zero blocks", packed(q, 8, scales("f16", 9, 2), zero, strategy="group", group_size=32)
    yield "int group zero blocks", compressed("int-quantized", dict(weight=q.to(torch.int8), weight_scale=scales("bf16", 9, 2), weight_zero_point=zero), num_bits=8, type="int", strategy="group", group_size=32, symmetric=False)
    yield "pack 4 tensor zero blocks", packed(codes(9, 64, -8, 8), 4, scales("bf16", 1), torch.tensor([-7], dtype=torch.int8), strategy="tensor")
    yield "mxfp4", mxfp4(3, 64, 6)


def mxfp4(experts, hidden, width):
    """Experts of gpt-oss: all codes in turn, with all scales but that of NaN."""
    stored, want = {}, {}
    for name, out, parts in ("gate_up_proj", 2 * width, ("gate_proj", "up_proj")), ("down_proj", width, ("down_proj",)):
        packed = codes(experts * out * hidden // 32, 16, 0, 256).to(torch.uint8).reshape(experts, out, hidden // 32, 16)
        exponents = torch.randint(0, 255, packed.shape[:-1], generator=g).to(torch.uint8)
        exponents.view(-1)[:4] = torch.tensor([0, 1, 2, 254], dtype=torch.uint8)
        stored |= {f"X.experts.{name}_blocks": packed, f"X.experts.{name}_scales": exponents}
        wide = convert_moe_packed_tensors(packed, exponents, dtype=torch.bfloat16)  # [experts, in, out]
        for e in range(experts):
            for i, part in enumerate(parts):
                want[f"X.experts.{e}.{part}.weight"] = wide[e, :, i :: len(parts)].t().contiguous()
    return dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"]), stored, want


LINEAR = [f"model.layers.0.{name}_proj" for name in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down")]


def llama(kind):
    """Rounds every linear layer to the nearest codes of a kind."""
    hidden = 32 if kind == "gptq" else 16  # gptqmodel has no less
    size = hidden // 2
    normal = lambda *shape: torch.randn(shape, generator=g) * 0.2
    plain = {"model.embed_tokens.weight": normal(32, hidden), "model.norm.weight": torch.ones(hidden) + normal(hidden)}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        plain[f"model.layers.0.{norm}.weight"] = torch.ones(hidden) + normal(hidden)
    plain = {k: v.to(torch.bfloat16) for k, v in plain.items()}
    stored, widened = dict(plain), dict(plain)
    for name in LINEAR:
        w = normal(hidden, hidden)
        grouped, blocks = w.view(hidden, 2, size), w.view(2, size, 2, size)
        if kind == "fp8":
            s = blocks.abs().amax((1, 3)) / 448
            q = (blocks / s[:, None, :, None]).reshape(w.shape).to(torch.float8_e4m3fn)
            config, tensors, want = fp8(q, s, [size, size])
        elif kind == "compressed-tensors-float":
            s = (w.abs().amax(1, keepdim=True) / 448).to(torch.bfloat16)
            q = (w / s.float()).to(torch.float8_e4m3fn)
            config, tensors, want = compressed("float-quantized", dict(weight=q, weight_scale=s), num_bits=8, type="float", strategy="channel")
        elif kind == "compressed-tensors-int":
            s = (w.abs().amax(1, keepdim=True) / 127).to(torch.bfloat16)
            q = (w / s.float()).round().clamp(-128, 127).to(torch.int8)
            config, tensors, want = compressed("int-quantized", dict(weight=q, weight_scale=s), num_bits=8, type="int", strategy="channel")
        else:
            s = (grouped.abs().amax(-1) / 7).to(torch.bfloat16 if kind == "compressed-tensors-pack" else torch.float16)
            q = (grouped / s.float()[..., None]).round().clamp(-8, 7).view(w.shape)
            if kind == "compressed-tensors-pack":
                config, tensors, want = packed(q, 4, s, strategy="group", group_size=size)
            elif kind == "awq":
                config, tensors, want = awq(size, (q + 8).t().to(torch.int32), torch.full((2, hidden), 8), s.t().contiguous())
            else:
                words = ((q + 8).t().to(torch.int32).reshape(hidden // 8, 8, hidden) << (4 * torch.arange(8)[None, :, None])).sum(1).to(torch.int32)
                sevens = torch.full((2, hidden // 8), 0x77777777, dtype=torch.int32)
                config, tensors, want = gptq(4, size, hidden, hidden, q=words, scale=s.t().contiguous(), zeros=sevens)
        stored |= {k.replace("X.", name + "."): v for k, v in tensors.items()}
        widened[name + ".weight"] = want
    model = dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden, intermediate_size=hidden, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=4, vocab_size=32, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16", quantization_config=config,
    )
    return model, stored, widened


def write(path, cases, widened):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, (config, stored, want) in cases:
            files = {"config.json": json.dumps(config).encode(), "model.safetensors": save(stored), widened: save(want)}
            for file, data in files.items():
                z.writestr(zipfile.ZipInfo(f"{name}/{file}"), data, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    write(OUT / "modules.zip", [(n, (c, {k: v.contiguous() for k, v in s.items()}, w if isinstance(w, dict) else {"X.weight": w.contiguous()})) for n, (c, s, w) in modules(sys.argv[1])], "want.safetensors")
    kinds = ["fp8", "compressed-tensors-float", "compressed-tensors-int", "compressed-tensors-pack", "gptq", "awq"]
    write(OUT / "llama.zip", [(kind, llama(kind)) for kind in kinds], "widened.safetensors")
