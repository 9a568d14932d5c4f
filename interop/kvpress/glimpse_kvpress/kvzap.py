from dataclasses import dataclass, field
from pathlib import Path

import kvpress
from kvpress import ScorerPress
from kvpress.presses.kvzap_press import KVzapModel
from transformers import PreTrainedModel

from .adapters import read_about
from .scored import ScoredPress


@dataclass
class KVzapPress(ScoredPress):
    """KVzap (Jeblick & Jégou 2026, arXiv:2601.07891): gates score an entry by the row that it is made of.

    adapter: folder that ``train gates`` wrote.
    """

    adapter: str | Path
    press: ScorerPress = field(init=False, repr=False)
    window: int = field(default=128, kw_only=True)
    sink: int = field(default=4, kw_only=True)

    kind = "kvzap"

    def __post_init__(self):
        read_about(Path(self.adapter), self.kind)
        self.press = Gates(self.adapter)
        super().__post_init__()

    def check_model(self, model: PreTrainedModel):
        super().check_model(model)
        gates, config = self.press.kvzap_model.config, model.config
        got, want = (gates.n_modules, gates.input_dim, gates.output_dim), (config.num_hidden_layers, config.hidden_size, config.num_key_value_heads)
        if got != want:
            raise ValueError(f"{self.adapter}: got {got} layers, inputs and KV heads, want {want}: they are another model's gates")


class Gates(kvpress.KVzapPress):
    """kvpress's own press with gates of a folder, where it fetches those that are published for a model's name."""

    def __init__(self, folder: str | Path):
        super().__init__()
        self.kvzap_model = KVzapModel.from_pretrained(folder)

    def post_init_from_model(self, model: PreTrainedModel):
        pass
