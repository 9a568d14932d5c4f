"""Adapters that Glimpse trained, as presses of kvpress (https://github.com/NVIDIA/kvpress).

    press = LookaheadKVPress("adapter", compression_ratio=0.9)
    pipe = pipeline("kv-press-text-generation", model=model, tokenizer=tokenizer)
    pipe(context, question=question, press=press)["answer"]

The base model alone prefills the prompt. The adapter's rows then go over the prompt's cache, with their
LoRA where they have one; what each layer's rows attend to in the prompt scores its entries, the rows are
dropped, and the best entries stay.
"""

import hashlib
import json
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from kvpress import BasePress
from kvpress.presses.base_press import SUPPORTED_MODELS
from kvpress.utils import compute_n_kept, get_prerope_query_states
from safetensors.torch import load_file
from transformers import DynamicCache, PreTrainedModel
from transformers.models.llama.modeling_llama import rotate_half

__all__ = ["JudgeQPress", "LookaheadKVPress"]

MODELS = tuple(m for m in SUPPORTED_MODELS if "Gemma" not in m.__name__)  # which have other layers in other places
LORA = re.compile(r"base_model\.model\.(.+)\.lora_A\.weight")


@dataclass
class LearnedPress(BasePress):
    """Scores a prompt's entries by the attention of an adapter's rows.

    adapter: folder that ``train`` or ``train export`` wrote.
    compression_ratio: share of the entries that go, in [0, 1).
    budget: entries that stay for each KV head and layer, in the place of a share.
    kernel: width of the max-pooling over positions, odd; None is the adapter's.
    """

    adapter: str | Path
    compression_ratio: float = 0.0
    budget: int | None = None
    kernel: int | None = None

    rows: torch.Tensor = field(init=False, repr=False)  # [rows, hidden]
    lora: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(init=False, repr=False)  # [r, in], [out, r] by module
    kept: list[torch.Tensor] = field(init=False, repr=False, default_factory=list)  # of the last prompt, by layer: [batch, KV heads, kept]

    kind: ClassVar[str]

    def __post_init__(self):
        if not 0 <= self.compression_ratio < 1:
            raise ValueError(f"compression_ratio: got {self.compression_ratio}, want a share in [0, 1)")
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget: got {self.budget}, want at least 1")
        folder = Path(self.adapter)
        about = json.loads((folder / "glimpse.json").read_text())
        if about.get("format") != "glimpse-adapter" or about["version"] != 1 or about["kind"] != self.kind:
            got = " ".join(str(about.get(key)) for key in ("format", "version", "kind"))
            raise ValueError(f"{folder}: got {got}, want glimpse-adapter 1 {self.kind}")
        for name, want in about["files"].items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != want:
                raise ValueError(f"{folder / name}: its SHA-256 is not the one in glimpse.json")
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

    @contextmanager
    def __call__(self, model: PreTrainedModel):
        """Compresses the cache of every prompt that the model prefills within, also by ``generate``."""
        if not isinstance(model, MODELS):
            raise TypeError(f"got {type(model).__name__}, want one of {', '.join(m.__name__ for m in MODELS)}")
        hidden = model.get_input_embeddings().weight.shape[1]
        if self.rows.shape[1] != hidden:
            raise ValueError(f"{self.adapter}: rows of {self.rows.shape[1]} numbers, want {hidden}: it is another model's adapter")
        modules = {name: model.get_submodule(name) for name in self.lora}
        for name, (down, up) in self.lora.items():
            if (up.shape[0], down.shape[1]) != tuple(modules[name].weight.shape):
                raise ValueError(f"{self.adapter}: {name}: got {up.shape[0]} × {down.shape[1]}, want {tuple(modules[name].weight.shape)}")
        running = False

        def prefilled(body, args, kwargs, output):
            nonlocal running
            cache = output.past_key_values
            ids = kwargs.get("input_ids", args[0] if args else None)
            length = (kwargs["inputs_embeds"] if ids is None else ids).shape[1]
            if running or cache.get_seq_length() != length:
                return
            mask = kwargs.get("attention_mask")
            if mask is not None and (mask.dim() != 2 or not mask.all()):
                raise ValueError("attention_mask: got padding, want prompts of one length")
            if type(cache) is not DynamicCache or any(layer.keys.shape[2] != length for layer in cache.layers):
                raise TypeError(f"past_key_values: got {type(cache).__name__}, want a DynamicCache that holds the whole prompt in every layer")
            running = True
            try:
                self.compress_cache(model, modules, cache, length)
            finally:
                running = False

        hook = model.model.register_forward_hook(prefilled, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()

    @torch.inference_mode()
    def compress_cache(self, model: PreTrainedModel, modules: dict, cache: DynamicCache, length: int):
        """Runs the rows over a cache of length entries, and keeps the best of these."""
        batch, keep = cache.layers[0].keys.shape[0], self.budget or compute_n_kept(length, self.compression_ratio)
        scores = {}

        def attended(module, args, kwargs, output):
            hidden = kwargs["hidden_states"]
            scores[module.layer_idx] = self.scores(module, hidden, cache.layers[module.layer_idx].keys, kwargs["position_embeddings"], length)

        def lora(name):
            down, up = (f.to(modules[name].weight.device) for f in self.lora[name])
            return lambda module, args, output: output + (args[0].to(down.dtype) @ down.T @ up.T).to(output.dtype)

        with ExitStack() as hooks:
            for name, module in modules.items():
                hooks.callback(module.register_forward_hook(lora(name)).remove)
            for layer in model.model.layers:
                hooks.callback(layer.self_attn.register_forward_hook(attended, with_kwargs=True).remove)
            positions = torch.arange(length, length + len(self.rows), device=model.device)
            model.model(
                inputs_embeds=self.rows.to(model.device, model.dtype).expand(batch, -1, -1),
                past_key_values=cache, position_ids=positions[None], cache_position=positions, use_cache=True,
            )
        self.kept = []
        for i, layer in enumerate(cache.layers):
            best = scores[i].sort(dim=-1, descending=True, stable=True).indices[..., : min(keep, length)].sort(dim=-1).values
            self.kept.append(best)
            take = best.unsqueeze(-1).expand(-1, -1, -1, layer.keys.shape[3])
            layer.keys, layer.values = layer.keys.gather(2, take), layer.values.gather(2, take)

    def scores(self, module, hidden: torch.Tensor, keys: torch.Tensor, rope: tuple, length: int) -> torch.Tensor:
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


class LookaheadKVPress(LearnedPress):
    """LookaheadKV (Ahn et al. 2026, arXiv:2603.10899, section 3): lookahead rows with LoRA."""

    kind = "lookaheadkv"


class JudgeQPress(LearnedPress):
    """Judge Q (Liu et al. 2025, arXiv:2509.10798, section 4): soft tokens alone."""

    kind = "judgeq"
