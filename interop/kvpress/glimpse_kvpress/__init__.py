"""What Glimpse has learned of a model, as presses of kvpress (https://github.com/NVIDIA/kvpress).

    press = LookaheadKVPress("adapter", compression_ratio=0.9)
    pipe = pipeline("kv-press-text-generation", model=model, tokenizer=tokenizer)
    pipe(context, question=question, press=press)["answer"]

The base model alone prefills the prompt. A press then scores the prompt's entries, in one of three ways: rows of an
adapter attend to them (LookaheadKVPress, JudgeQPress, RestoreKVPress), gates have read what they were made of
(KVzapPress), or a press of kvpress's does it (HeadBudgetsPress). The best entries stay, as many in every KV head or as
learned budgets say (``heads``). RestoreKVPress keeps rows beside them.
"""

from .kvzap import KVzapPress
from .restorekv import RestoreKVPress
from .rows import JudgeQPress, LookaheadKVPress
from .scored import HeadBudgetsPress

__all__ = ["PRESSES", "HeadBudgetsPress", "JudgeQPress", "KVzapPress", "LookaheadKVPress", "RestoreKVPress"]

PRESSES = {press.kind: press for press in (LookaheadKVPress, JudgeQPress, RestoreKVPress, KVzapPress)}
"""The press of every kind of adapter, which glimpse.json names."""
