from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from kvpress import BasePress
from kvpress.presses.base_press import SUPPORTED_MODELS
from kvpress.utils import compute_n_kept
from transformers import DynamicCache, PreTrainedModel

from .heads import HeadBudgets

MODELS = tuple(m for m in SUPPORTED_MODELS if "Gemma" not in m.__name__)  # Gemma has other layers in other places

# What every head keeps of a prompt under learned budgets, however little its share is. A context has no question, and keeps none of it.
LEAST_SINK = 4  # first entries (StreamingLLM, arXiv:2309.17453, section 3.2)
LEAST_RECENT = 32  # last entries, of a quarter of the budget at most (SnapKV, arXiv:2404.14469, section 4.2)
EQUAL_SHARE = 0.2  # of the rest of the budget (Ada-KV, arXiv:2407.11550, section 3.2)


@dataclass(kw_only=True)
class GlimpsePress(BasePress):
    """Scores a prompt's entries when it has run, and keeps the best of every layer and KV head.

    compression_ratio: share of the entries that go, in [0, 1).
    budget: entries that stay for each KV head and layer in the mean, in the place of a share.
    heads: budgets.json of ``train budgets``, by which the KV heads of all layers share these; None: all have the same.
        Where heads keep fewer than others, kvpress masks what they do not keep: it takes memory, and attention that is not eager.
    context: the prompt is a context that is evicted before its question is known, as by kvpress's pipeline. Learned
        budgets are then the shares alone; else every head keeps the first and the last entries, too.
    """

    compression_ratio: float = 0.0
    budget: int | None = None
    heads: str | Path | None = None
    context: bool = False

    kept: list[torch.Tensor] = field(init=False, repr=False, default_factory=list)  # of the last prompt, by layer: bool [batch, KV heads, length]

    def __post_init__(self):
        if not 0 <= self.compression_ratio < 1:
            raise ValueError(f"compression_ratio: got {self.compression_ratio}, want a share in [0, 1)")
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget: got {self.budget}, want at least 1")
        self.head_budgets = HeadBudgets(self.heads) if self.heads is not None else None

    def check_model(self, model: PreTrainedModel):
        """TypeError or ValueError unless the press fits the model."""
        if not isinstance(model, MODELS):
            raise TypeError(f"got {type(model).__name__}, want one of {', '.join(m.__name__ for m in MODELS)}")
        if self.head_budgets is not None:
            self.head_budgets.check(model.config.num_hidden_layers, model.config.num_key_value_heads)
            if model.config._attn_implementation == "eager":
                raise ValueError("attn_implementation: got eager, want another for learned budgets: kvpress masks in no eager attention")

    def watch(self, model: PreTrainedModel) -> AbstractContextManager:
        """Observes a prompt's pass while it is open, where the scores need that."""
        return nullcontext()

    def scores(self, model: PreTrainedModel, cache: DynamicCache, length: int) -> list[torch.Tensor]:
        """Scores of the cache's first length entries, by layer [batch, KV heads, length]; higher ones stay. The cache is
        left as it was."""
        raise NotImplementedError

    def protected(self, budget: int) -> tuple[int, int]:
        """How many first and last entries stay whatever their scores, budget at most."""
        return 0, 0

    @contextmanager
    def __call__(self, model: PreTrainedModel):
        """Compresses the cache of every prompt that the model prefills within, also by ``generate``."""
        self.check_model(model)
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
                with torch.no_grad():
                    self.compress_cache(model, cache, length)
            finally:
                running = False

        hook = model.model.register_forward_hook(prefilled, with_kwargs=True)
        try:
            with self.watch(model):
                yield
        finally:
            hook.remove()

    def compress_cache(self, model: PreTrainedModel, cache: DynamicCache, length: int):
        """Keeps the best of a cache of length entries."""
        budget = self.budget or compute_n_kept(length, self.compression_ratio)
        if budget >= length:
            self.kept = [torch.ones_like(layer.keys[..., 0], dtype=torch.bool) for layer in cache.layers]
        else:
            self.evict(model, cache, length, budget)

    def evict(self, model: PreTrainedModel, cache: DynamicCache, length: int, budget: int):
        """Keeps budget entries of each head in the mean, which are fewer than length."""
        self.kept = self.select(self.scores(model, cache, length), budget)
        retain(model, cache, self.kept)

    def select(self, scores: list[torch.Tensor], budget: int) -> list[torch.Tensor]:
        """What is kept by layer, bool [batch, KV heads, length]: of equal scores the first entries."""
        (_, kv_heads, length), (sink, recent) = scores[0].shape, self.protected(budget)
        counts = [[budget] * kv_heads] * len(scores)
        if self.head_budgets is not None:
            least = sink + recent
            if not self.context:
                sink, recent = max(sink, LEAST_SINK), max(recent, min(LEAST_RECENT, budget // 4))
                least = sink + recent + int(EQUAL_SHARE * max(0, budget - sink - recent))
            counts = self.head_budgets.of(length, budget, least)
        sink = min(sink, budget)
        recent = min(recent, budget - sink)
        kept = []
        for layer, count in zip(scores, counts):
            ranked = layer.float().nan_to_num(nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))
            ranked[..., :sink] = ranked[..., length - recent :] = float("inf")
            order = ranked.sort(dim=-1, descending=True, stable=True).indices
            best = torch.arange(length, device=order.device) < torch.tensor(count, device=order.device)[:, None]
            kept.append(torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, best.expand_as(order)))
        return kept


def retain(model: PreTrainedModel, cache: DynamicCache, kept: list[torch.Tensor], newest: int = 0):
    """Keeps of every layer's cache what is kept of its first entries [batch, KV heads, length], and the newest.

    Layers and heads then hold as many entries as the one that keeps most, as transformers wants it, in their order. The
    ones too many of a head are masked by kvpress's attention."""
    width = max(int(k.sum(-1).max()) for k in kept)
    for layer, decoder, k in zip(cache.layers, model.model.layers, kept):
        end = layer.keys.shape[2]
        take = k.byte().sort(dim=-1, descending=True, stable=True).indices[..., :width]
        spare = ~k.gather(-1, take)
        layer.keys, layer.values = (
            torch.cat([x.gather(2, take.unsqueeze(-1).expand(-1, -1, -1, x.shape[3])), x[:, :, end - newest :]], 2)
            for x in (layer.keys, layer.values)
        )
        decoder.self_attn.masked_key_indices = torch.nonzero(spare, as_tuple=True) if spare.any() else None
