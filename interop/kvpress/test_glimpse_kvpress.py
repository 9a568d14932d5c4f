"""The presses against evict, and against attention with plain masks: pytest interop/kvpress. Needs bin/evict and
bin/train (make build).

Other models: GLIMPSE_PRESS_MODEL, a folder or a GGUF file, GLIMPSE_PRESS_ADAPTERS, a comma-separated list of folders, and
GLIMPSE_PRESS_HEADS, a budgets.json; GLIMPSE_PRESS_PROMPTS is how many are compared."""

import json
import os
import random
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from glimpse_kvpress import PRESSES, HeadBudgetsPress, JudgeQPress, KVzapPress, LookaheadKVPress, RestoreKVPress
from kvpress import ExpectedAttentionPress, KeyDiffPress, SnapKVPress
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, pipeline

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(os.environ.get("GLIMPSE_PRESS_MODEL", ROOT / "model/builtin/reference"))
ADAPTERS = [Path(p) for p in os.environ.get("GLIMPSE_PRESS_ADAPTERS", "").split(",") if p]
HEADS = Path(os.environ.get("GLIMPSE_PRESS_HEADS", ROOT / "adapters/reference/budgets.json"))
LOCATION = (MODEL.parent, {"gguf_file": MODEL.name}) if MODEL.suffix == ".gguf" else (MODEL, {})
# What selects, by the policy of evict that it stands for.
SCORERS = {"keydiff": (KeyDiffPress, 0), "expectedattention": (ExpectedAttentionPress, 4)}  # with their first entries that stay
LEAST = torch.finfo(torch.float32).tiny  # the smallest normal number
POLICIES = [*PRESSES, "restorekv(scorer=lookaheadkv)", *SCORERS]


@pytest.fixture(scope="module")
def model():
    where, settings = LOCATION
    return AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, **settings).eval()


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    """Folders by kind: those of the environment, or of the built-in model what ships and what is trained here for two steps."""
    if "GLIMPSE_PRESS_MODEL" in os.environ:
        return {json.loads((folder / "glimpse.json").read_text())["kind"]: folder for folder in ADAPTERS}
    work = tmp_path_factory.mktemp("adapters")
    run("train", "generate", "--samples", 4, "--out", work / "samples.jsonl")
    run("train", "gates", "--data", work / "samples.jsonl", "--samples", 4, "--out", work / "kvzap")
    run("train", "restore", "--data", work / "samples.jsonl", "--steps", 2, "--batch", 1, "--warmup", 0, "--lr", 0.01, "--rows", 12,
        "--rank", 4, "--pooling", 3, "--validate", 0, "--out", work / "restorekv")
    shipped = ROOT / "adapters/reference"
    return {"lookaheadkv": shipped / "lookaheadkv", "judgeq": shipped / "judgeq", "restorekv": work / "restorekv", "kvzap": work / "kvzap"}


@pytest.fixture
def press_of(adapters):
    """Makes the press that a policy of evict stands for."""

    def press(policy, **settings):
        kind, scored, _ = policy.partition("(scorer=")
        if any(name not in adapters for name in ([kind, "lookaheadkv"] if scored else [kind])) and kind in PRESSES:
            pytest.skip(f"no adapter for {policy}")
        if scored:
            settings["scorer"] = LookaheadKVPress(adapters["lookaheadkv"])
        if kind in PRESSES:
            return PRESSES[kind](adapters[kind], **settings)
        if settings.get("heads") is None:
            pytest.skip("without learned budgets it is kvpress's own")
        scorer, sink = SCORERS[policy]
        return HeadBudgetsPress(scorer(), sink=sink, **settings)

    return press


def run(program, *args):
    done = subprocess.run([ROOT / "bin" / program, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def prompts(model, count):
    draw = random.Random(1)
    return [[draw.randrange(model.config.vocab_size) for _ in range(draw.randrange(200, 600))] for _ in range(count)]


def compress(model, press, ids):
    cache = DynamicCache()
    with torch.no_grad(), press(model):
        model.model(input_ids=torch.tensor([ids]), past_key_values=cache)
    return cache


def evicting(policy, adapters, heads, budget):
    """The flags of evict."""
    folders = {kind: adapters[kind] for kind in adapters if kind in policy}
    return ["--model", MODEL, *(arg for folder in folders.values() for arg in ("--adapter", folder)), "--policy", policy,
            "--heads", heads or "equal", "--budget", budget, "--exact"]


def check_kept(press, heads, budget, length):
    """Compares with the heads of evict inspect: ties alone may differ. Returns entries that are the same, and all.

    Scores below the smallest normal float32 number are ties, and count as the same: they have no digits left, and both sides
    sum, average and multiply in another order."""
    same = entries = 0
    for head in heads:
        ours, theirs = set(head["positions"]), set(press.kept[head["layer"]][0, head["kv_head"]].nonzero().flatten().tolist())
        assert len(ours) == len(theirs)
        same, entries = same + len(ours & theirs), entries + len(ours)
        if head.get("scores"):  # a context has none
            alone = [sorted(head["scores"][p] for p in positions) for positions in (ours - theirs, theirs - ours)]
            assert alone[0] == pytest.approx(alone[1], rel=1e-3, abs=LEAST)
            same += sum(a < LEAST and b < LEAST for a, b in zip(*alone))
    assert 0 < entries <= budget * len(heads) < length * len(heads)
    return same, entries


@pytest.mark.parametrize("heads", [None, HEADS], ids=["equal", "learned"])
@pytest.mark.parametrize("policy", POLICIES)
def test_keeps_what_evict_keeps(model, adapters, press_of, policy, heads, tmp_path):
    total = [0, 0]
    for ids in prompts(model, int(os.environ.get("GLIMPSE_PRESS_PROMPTS", 10))):
        (tmp_path / "ids").write_text(" ".join(map(str, ids)))
        budget = len(ids) // 10
        press = press_of(policy, budget=budget, heads=heads)
        compress(model, press, ids)
        shown = run("evict", "inspect", *evicting(policy, adapters, heads, budget), "--token-ids", tmp_path / "ids", "--json")
        total = [a + b for a, b in zip(total, check_kept(press, json.loads(shown)["heads"], budget, len(ids)))]
    print(f"{policy}: {total[0]} of {total[1]} entries are the same")
    assert total[0] >= 0.999 * total[1]


@pytest.mark.parametrize("policy", POLICIES)
def test_keeps_of_a_context_what_evict_keeps(model, adapters, press_of, policy, tmp_path):
    words = sorted(AutoTokenizer.from_pretrained(LOCATION[0], **LOCATION[1]).get_vocab())
    words = [word for word in words if word.isascii() and word.isalpha()]
    (tmp_path / "text").write_text(" ".join(random.Random(2).choices(words, k=300)))
    press = press_of(policy, budget=40, heads=HEADS, context=True)
    flags = evicting(policy, adapters, HEADS, 40)
    run("evict", "compress", *flags, tmp_path / "text", "--out", tmp_path / "context.safetensors")
    ids = load_file(tmp_path / "context.safetensors")["tokens"].tolist()
    compress(model, press, ids)
    shown = run("evict", "inspect", *flags[:2], "--exact", "--context", tmp_path / "context.safetensors", "--json")
    same, entries = check_kept(press, json.loads(shown)["heads"], 40, len(ids))
    assert same >= 0.999 * entries


@torch.no_grad()
@pytest.mark.parametrize("heads", [None, HEADS], ids=["equal", "learned"])
@pytest.mark.parametrize("policy", POLICIES)
def test_answers_as_behind_a_masked_cache(model, press_of, policy, heads):
    """What follows a prompt sees the entries that are kept, and rows that stay, as if the whole cache were there with a
    mask over what was evicted, and stands behind the rows."""
    ids, question = prompts(model, 2)[0], prompts(model, 2)[1][:9]
    length, press = len(ids), press_of(policy, budget=len(ids) // 8, heads=heads)
    cache = compress(model, press, ids)
    positions = torch.arange(length, length + len(question))[None]
    got = model(input_ids=torch.tensor([question]), past_key_values=cache, position_ids=positions).logits

    whole, rows, stay = DynamicCache(), 0, 0
    model.model(input_ids=torch.tensor([ids]), past_key_values=whole)
    if isinstance(press, RestoreKVPress):
        rows, stay = len(press.rows), press.stay
        press.append_rows(model, whole, length)
    with ExitStack() as hooks:
        for layer, kept in zip(model.model.layers, press.kept):
            seen = torch.cat([kept[0], torch.zeros(len(kept[0]), rows - stay, dtype=bool), torch.ones(len(kept[0]), stay, dtype=bool)], 1)
            seen = torch.cat([
                seen.repeat_interleave(layer.self_attn.num_key_value_groups, 0)[:, None].expand(-1, len(question), -1),
                torch.ones(len(question), len(question), dtype=bool).tril().expand(model.config.num_attention_heads, -1, -1)], 2)
            mask = torch.zeros(1, *seen.shape).masked_fill(~seen, float("-inf"))
            layer.self_attn.masked_key_indices = None
            hook = layer.self_attn.register_forward_pre_hook(lambda m, args, kwargs, mask=mask: (args, {**kwargs, "attention_mask": mask}), with_kwargs=True)
            hooks.callback(hook.remove)
        want = model(input_ids=torch.tensor([question]), past_key_values=whole, position_ids=positions + rows).logits
    full = compress(model, press_of(policy, heads=HEADS), ids)
    unlike = model(input_ids=torch.tensor([question]), past_key_values=full, position_ids=positions).logits
    scale = want.abs().max()
    assert (got - want).abs().max() < 1e-4 * scale
    assert (unlike - want).abs().max() > 1e-2 * scale  # eviction shows


def test_cache_holds_the_kept_entries(model, press_of):
    ids = prompts(model, 1)[0]
    whole = DynamicCache()
    with torch.no_grad():
        model.model(input_ids=torch.tensor([ids]), past_key_values=whole)
    press = press_of("lookaheadkv", compression_ratio=0.9)
    cache = compress(model, press, ids)
    for before, after, kept in zip(whole.layers, cache.layers, press.kept):
        assert after.keys.shape[2] == int(len(ids) * (1 - 0.9))
        for head in range(kept.shape[1]):
            assert torch.equal(after.keys[0, head], before.keys[0, head, kept[0, head]])
            assert torch.equal(after.values[0, head], before.values[0, head, kept[0, head]])
    with torch.no_grad():  # the model is as it was
        again = DynamicCache()
        model.model(input_ids=torch.tensor([ids]), past_key_values=again)
    assert torch.equal(again.layers[-1].keys, whole.layers[-1].keys)


@pytest.mark.parametrize("heads", [None, HEADS], ids=["equal", "learned"])
@pytest.mark.parametrize("policy", POLICIES)
def test_generate(model, press_of, policy, heads):
    ids = torch.tensor([prompts(model, 1)[0]])
    settings = dict(attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=0)
    full = model.generate(ids, **settings)
    with press_of(policy, heads=heads)(model):
        assert torch.equal(model.generate(ids, **settings), full)
    with press_of(policy, budget=20, heads=heads)(model):
        assert model.generate(ids, **settings).shape[1] > ids.shape[1]


def test_pipeline_of_kvpress(model, press_of):
    tokenizer = AutoTokenizer.from_pretrained(LOCATION[0], **LOCATION[1])
    pipe = pipeline("kv-press-text-generation", model=model, tokenizer=tokenizer, device="cpu")
    text = tokenizer.decode(prompts(model, 1)[0])
    settings = dict(compression_ratio=0.5, heads=HEADS, context=True)
    for press in (press_of("lookaheadkv", **settings), press_of("restorekv", **settings), HeadBudgetsPress(SnapKVPress(), **settings)):
        assert isinstance(pipe(text, question="lamp", press=press, max_new_tokens=4)["answer"], str)


def test_refusals(model, adapters, tmp_path):
    lookahead = adapters["lookaheadkv"]
    with pytest.raises(ValueError, match="want glimpse-adapter 1 judgeq"):
        JudgeQPress(lookahead)
    with pytest.raises(ValueError, match="want glimpse-adapter 1 kvzap"):
        KVzapPress(lookahead)
    with pytest.raises(ValueError, match="share in"):
        LookaheadKVPress(lookahead, compression_ratio=1)
    with pytest.raises(ValueError, match="want a budgets.json"):
        HeadBudgetsPress(KeyDiffPress())
    with pytest.raises(TypeError, match="want a ScorerPress"):
        HeadBudgetsPress(LookaheadKVPress(lookahead), heads=HEADS)
    shutil.copytree(lookahead, tmp_path / "damaged")
    file = tmp_path / "damaged/adapter_model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match="SHA-256"):
        LookaheadKVPress(tmp_path / "damaged")
    budgets = json.loads(HEADS.read_text())
    for at in budgets["budgets"]:
        at["heads"] = at["heads"][1:]
    (tmp_path / "budgets.json").write_text(json.dumps(budgets))
    with pytest.raises(ValueError, match="budgets.json: budget"), LookaheadKVPress(lookahead, heads=tmp_path / "budgets.json")(model):
        pass
    padded = torch.tensor([[0] * 4 + [1] * 12])
    with pytest.raises(ValueError, match="padding"), torch.no_grad(), LookaheadKVPress(lookahead)(model):
        model.model(input_ids=padded, attention_mask=padded, past_key_values=DynamicCache())
