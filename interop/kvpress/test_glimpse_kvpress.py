"""The presses against evict inspect: pytest interop/kvpress. Needs bin/evict (make build).

Other models: GLIMPSE_PRESS_MODEL and GLIMPSE_PRESS_ADAPTERS, a folder and a comma-separated list of folders."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from glimpse_kvpress import JudgeQPress, LookaheadKVPress
from kvpress import SnapKVPress
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, pipeline

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(os.environ.get("GLIMPSE_PRESS_MODEL", ROOT / "model/builtin/reference"))
ADAPTERS = [Path(p) for p in os.environ.get("GLIMPSE_PRESS_ADAPTERS", "").split(",") if p] or [
    ROOT / "adapters/reference/lookaheadkv", ROOT / "adapters/reference/judgeq"]
PRESSES = {press.kind: press for press in (LookaheadKVPress, JudgeQPress)}


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


def press_of(adapter, **settings):
    return PRESSES[json.loads((adapter / "glimpse.json").read_text())["kind"]](adapter, **settings)


def prompts(model, count):
    draw = random.Random(1)
    return [[draw.randrange(model.config.vocab_size) for _ in range(draw.randrange(200, 600))] for _ in range(count)]


def compress(model, press, ids):
    cache = DynamicCache()
    with torch.no_grad(), press(model):
        model.model(input_ids=torch.tensor([ids]), past_key_values=cache)
    return cache


def inspect(adapter, budget, ids, file):
    file.write_text(" ".join(map(str, ids)))
    kind = json.loads((adapter / "glimpse.json").read_text())["kind"]
    done = subprocess.run(
        [ROOT / "bin/evict", "inspect", "--model", MODEL, "--adapter", adapter, "--policy", kind, "--budget", str(budget), "--token-ids", file, "--json"],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["heads"]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda p: p.name)
def test_keeps_what_evict_keeps(model, adapter, tmp_path):
    same = entries = 0
    for ids in prompts(model, 20):
        budget = len(ids) // 10
        press = press_of(adapter, budget=budget)
        compress(model, press, ids)
        for head in inspect(adapter, budget, ids, tmp_path / "ids"):
            ours = set(head["positions"])
            theirs = set(press.kept[head["layer"]][0, head["kv_head"]].tolist())
            assert len(theirs) == budget
            same, entries = same + len(ours & theirs), entries + budget
            for position in ours ^ theirs:  # ties alone
                cut = min(head["scores"][p] for p in ours)
                assert head["scores"][position] == pytest.approx(cut, rel=1e-3)
    print(f"{adapter.name}: {same} of {entries} entries are the same, {100 * same / entries:.3f}%")
    assert same >= 0.999 * entries


def test_cache_holds_the_kept_entries(model):
    ids = prompts(model, 1)[0]
    whole = DynamicCache()
    with torch.no_grad():
        model.model(input_ids=torch.tensor([ids]), past_key_values=whole)
    press = press_of(ADAPTERS[0], compression_ratio=0.9)
    cache = compress(model, press, ids)
    for before, after, kept in zip(whole.layers, cache.layers, press.kept):
        assert kept.shape[2] == int(len(ids) * (1 - 0.9))
        for head in range(kept.shape[1]):
            assert torch.equal(after.keys[0, head], before.keys[0, head, kept[0, head]])
            assert torch.equal(after.values[0, head], before.values[0, head, kept[0, head]])
    with torch.no_grad():  # the model is as it was
        again = DynamicCache()
        model.model(input_ids=torch.tensor([ids]), past_key_values=again)
    assert torch.equal(again.layers[-1].keys, whole.layers[-1].keys)


def test_generate_with_everything_kept(model):
    ids = torch.tensor([prompts(model, 1)[0]])
    settings = dict(attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=0)
    full = model.generate(ids, **settings)
    with press_of(ADAPTERS[0])(model):
        assert torch.equal(model.generate(ids, **settings), full)
    with press_of(ADAPTERS[0], budget=2)(model):
        assert model.generate(ids, **settings).shape == full.shape


def test_pipeline_of_kvpress(model):
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    pipe = pipeline("kv-press-text-generation", model=model, tokenizer=tokenizer, device="cpu")
    text = tokenizer.decode(prompts(model, 1)[0])
    for press in (press_of(ADAPTERS[0], compression_ratio=0.5), SnapKVPress(0.5)):
        assert isinstance(pipe(text, question="lamp", press=press, max_new_tokens=4)["answer"], str)


def test_refusals(model, tmp_path):
    lookahead = next(a for a in ADAPTERS if PRESSES[json.loads((a / "glimpse.json").read_text())["kind"]] is LookaheadKVPress)
    with pytest.raises(ValueError, match="want glimpse-adapter 1 judgeq"):
        JudgeQPress(lookahead)
    with pytest.raises(ValueError, match="share in"):
        LookaheadKVPress(lookahead, compression_ratio=1)
    shutil.copytree(lookahead, tmp_path / "damaged")
    file = tmp_path / "damaged/adapter_model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match="SHA-256"):
        LookaheadKVPress(tmp_path / "damaged")
    padded = torch.tensor([[0] * 4 + [1] * 12])
    with pytest.raises(ValueError, match="padding"), torch.no_grad(), LookaheadKVPress(lookahead)(model):
        model.model(input_ids=padded, attention_mask=padded, past_key_values=DynamicCache())
