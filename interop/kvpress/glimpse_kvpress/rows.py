import json
import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from kvpress.utils import get_prerope_query_states
from safetensors.torch import load_file
from transformers import DynamicCache, PreTrainedModel
from transformers.models.llama.modeling_llama import rotate_half

from .adapters import read_about
from .base import GlimpsePress

LORA = re.compile(r"base_model\.model\.(.+)\.lora_A\.weight")


@dataclass
class RowsPress(GlimpsePress):
    """Scores entries by the attention of an adapter's rows, which run over the prompt's cache with their LoRA.

    adapter: folder that ``train`` or ``train export`` wrote.
    kernel: width of the max-pooling over positions, odd; None is the adapter's.
    """

    adapter: str | Path
    kernel: int | None = field(default=None, kw_only=True)

    rows: torch.Tensor = field(init=False, repr=False)  # [rows, hidden]
    lora: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(init=False, repr=False)  # [r, in], [out, r] by module

    kind: ClassVar[str]

    def __post_init__(self):
        super().__post_init__()
        folder = Path(self.adapter)
        about = read_about(folder, self.kind)
        self.rows = load_file(folder / "lookahead_embeddings.safetensors")["lookahead_embeddings"]
        if self.kernel is None:
            self.kernel = about["pooling_kernel"]
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"kernel: got {self.kernel}, want an odd number")
        self.lora = {}
        if "adapter_model.safetensors" in about["files"]:
            config = json.loads((folder / "adapter_config.json").read_text())
            factors = load_file(folder / "adapter_model.safetensors")
            for name in filter(None, map(LORA.fullmatch, factors)):
                up = factors[name[0].replace(".lora_A.", ".lora_B.")]
                self.lora[name[1]] = factors[name[0]].float(), up.float() * (config["lora_alpha"] / config["r"])

    def check_model(self, model: PreTrainedModel):
        super().check_model(model)
        hidden = model.get_input_embeddings().weight.shape[1]
        if self.rows.shape[1] != hidden:
            raise ValueError(f"{self.adapter}: rows of {self.rows.shape[1]} numbers, want {hidden}: it is another model's adapter")
        for name, (down, up) in self.lora.items():
            want = tuple(model.get_submodule(name).weight.shape)
            if (up.shape[0], down.shape[1]) != want:
                raise ValueError(f"{self.adapter}: {name}: got {up.shape[0]} × {down.shape[1]}, want {want}")

    def append_rows(self, model: PreTrainedModel, cache: DynamicCache, length: int):
        """Runs the rows behind a cache of length entries, to which theirs are appended."""

        def lora(name, module):
            down, up = (f.to(module.weight.device) for f in self.lora[name])
            return lambda module, args, output: output + (args[0].to(down.dtype) @ down.T @ up.T).to(output.dtype)

        with ExitStack() as hooks:
            for name in self.lora:
                module = model.get_submodule(name)
                hooks.callback(module.register_forward_hook(lora(name, module)).remove)
            positions = torch.arange(length, length + len(self.rows), device=model.device)
            batch = cache.layers[0].keys.shape[0]
            model.model(
                inputs_embeds=self.rows.to(model.device, model.dtype).expand(batch, -1, -1),
                past_key_values=cache, position_ids=positions[None], cache_position=positions, use_cache=True,
            )

    def scores(self, model: PreTrainedModel, cache: DynamicCache, length: int) -> list[torch.Tensor]:
        scores = []

        def attended(module, args, kwargs, output):
            scores.append(self.attention(module, kwargs["hidden_states"], cache.layers[module.layer_idx].keys, kwargs["position_embeddings"], length))

        with ExitStack() as hooks:
            for layer in model.model.layers:
                hooks.callback(layer.self_attn.register_forward_hook(attended, with_kwargs=True).remove)
            self.append_rows(model, cache, length)
        cache.crop(length)
        return scores

    def attention(self, module, hidden: torch.Tensor, keys: torch.Tensor, rope: tuple, length: int) -> torch.Tensor:
        """Mean attention of the rows [batch, rows, hidden] to the first length keys, mean over the query heads of
        each KV head, max-pooled: [batch, KV heads, length] in float32."""
        cos, sin = (part.unsqueeze(1) for part in rope)
        query = get_prerope_query_states(module, hidden)
        query = (query * cos + rotate_half(query) * sin).float()
        batch, heads, rows, width = query.shape
        groups = keys.shape[1]
        query = query.reshape(batch, groups, heads // groups, rows, width)
        weights = query @ keys.float().unsqueeze(2).transpose(-1, -2) * module.scaling
        future = torch.ones(rows, rows, dtype=torch.bool, device=keys.device).triu(1)
        weights[..., length:].masked_fill_(future, float("-inf"))
        mean = weights.softmax(-1)[..., :length].mean((2, 3))
        return torch.nn.functional.max_pool1d(mean, self.kernel, stride=1, padding=self.kernel // 2)


@dataclass
class LookaheadKVPress(RowsPress):
    """LookaheadKV (Ahn et al. 2026, arXiv:2603.10899, section 3): lookahead rows with LoRA."""

    kind = "lookaheadkv"


@dataclass
class JudgeQPress(RowsPress):
    """Judge Q (Liu et al. 2025, arXiv:2509.10798, section 4): soft tokens alone."""

    kind = "judgeq"
