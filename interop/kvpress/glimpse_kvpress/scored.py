from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from kvpress import ScorerPress
from transformers import DynamicCache, PreTrainedModel

from .base import GlimpsePress


@dataclass
class ScoredPress(GlimpsePress):
    """Scores entries by a press of kvpress's, layer by layer while the prompt runs.

    window: last entries that stay whatever their scores, half of the budget at most.
    sink: first entries that do.
    """

    press: ScorerPress
    window: int = field(default=0, kw_only=True)
    sink: int = field(default=0, kw_only=True)

    seen: dict[int, torch.Tensor] = field(init=False, repr=False, default_factory=dict)  # scores of a pass by layer

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.press, ScorerPress):
            raise TypeError(f"press: got {type(self.press).__name__}, want a ScorerPress of kvpress")
        if min(self.window, self.sink) < 0:
            raise ValueError(f"window, sink: got {self.window}, {self.sink}, want 0 or more")

    @contextmanager
    def watch(self, model: PreTrainedModel):
        self.press.post_init_from_model(model)

        def attended(module, args, kwargs, output):
            hidden, layer = kwargs["hidden_states"], kwargs["past_key_values"].layers[module.layer_idx]
            if layer.keys.shape[2] == hidden.shape[1]:
                with torch.no_grad():
                    self.seen[module.layer_idx] = self.press.score(module, hidden, layer.keys, layer.values, output[1], kwargs)

        with ExitStack() as hooks:
            hooks.callback(self.seen.clear)
            for layer in model.model.layers:
                layer.self_attn.rotary_emb = model.model.rotary_emb  # as kvpress gives it to its presses
                hooks.callback(layer.self_attn.register_forward_hook(attended, with_kwargs=True).remove)
            yield

    def scores(self, model: PreTrainedModel, cache: DynamicCache, length: int) -> list[torch.Tensor]:
        return [self.seen.pop(layer) for layer in range(len(cache.layers))]

    def protected(self, budget: int) -> tuple[int, int]:
        sink = min(self.sink, budget)
        return sink, min(self.window, budget // 2, budget - sink)


@dataclass
class HeadBudgetsPress(ScoredPress):
    """Any ScorerPress of kvpress under learned budgets of heads: ``HeadBudgetsPress(KeyDiffPress(), heads="budgets.json")``.
    The press scores; its own compression_ratio does not count."""

    def __post_init__(self):
        super().__post_init__()
        if self.heads is None:
            raise ValueError("heads: got None, want a budgets.json of train budgets")
