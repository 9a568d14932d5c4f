from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.models.llama.modeling_llama import rotate_half

from .base import GlimpsePress, retain
from .rows import RowsPress


@dataclass
class RestoreKVPress(RowsPress):
    """RestoreKV (arXiv:2608.01247): the last rows, which have attended to the whole prompt, stay beside the best
    entries, which the rows or another press have scored. The budget counts them.

    scorer: the press that scores in their place; its own budgets do not count.
    stay: how many rows stay; half of the budget at most, and none where the model has no positions for them.
    """

    scorer: GlimpsePress | None = field(default=None, kw_only=True)
    stay: int = field(default=8, kw_only=True)

    kind = "restorekv"

    def __post_init__(self):
        super().__post_init__()
        if self.stay < 0:
            raise ValueError(f"stay: got {self.stay}, want 0 or more")

    def check_model(self, model: PreTrainedModel):
        super().check_model(model)
        if self.scorer is not None:
            self.scorer.check_model(model)

    def watch(self, model: PreTrainedModel) -> AbstractContextManager:
        return super().watch(model) if self.scorer is None else self.scorer.watch(model)

    def scores(self, model: PreTrainedModel, cache: DynamicCache, length: int) -> list[torch.Tensor]:
        return super().scores(model, cache, length) if self.scorer is None else self.scorer.scores(model, cache, length)

    def protected(self, budget: int) -> tuple[int, int]:
        return super().protected(budget) if self.scorer is None else self.scorer.protected(budget)

    def evict(self, model: PreTrainedModel, cache: DynamicCache, length: int, budget: int):
        rows = len(self.rows)
        stay = min(self.stay, rows, budget // 2)
        if stay == 0 or length + rows > model.config.max_position_embeddings:
            return super().evict(model, cache, length, budget)
        self.kept = self.select(self.scores(model, cache, length), budget - stay)
        self.append_rows(model, cache, length)
        retain(model, cache, self.kept, newest=stay)
        turn_back(model, cache, rows)


def turn_back(model: PreTrainedModel, cache: DynamicCache, positions: int):
    """Moves all keys so many positions back. The next token belongs behind the rows, and transformers and kvpress give it
    the position behind the prompt: to queries there the keys are as far away as they should be, since RoPE is relative."""
    for layer in cache.layers:
        angle = positions * model.model.rotary_emb.inv_freq.to(layer.keys.device).double()
        cos, sin = (f(torch.cat([angle, angle])).float() for f in (torch.cos, torch.sin))
        keys = layer.keys.float()
        layer.keys = (keys * cos - rotate_half(keys) * sin).to(layer.keys.dtype)
