#!/usr/bin/env python3
"""Makes the fixtures of model/tokenizer: tiny tokenizer.json files, and what the
reference implementation does with them.

    pip install tokenizers==0.22.2  # that of transformers 4.57
    python3 lab/golden/tokenizer_fixtures.py model/tokenizer/testdata

Writes NAME.json for every tokenizer below, and golden.json: for each tokenizer
and text the ids with special tokens (one before and one after the text), and
the texts decoded from them with and without special tokens; and the same two texts of
ids in no order, as a model may generate them, with runs of bytes that are no character.
"""

import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")

CORPUS = """
The cache of keys and values grows with every token of the prompt, and the
attention of a head reads all of it for each new token. Most of what is read is
weighted with almost nothing. A learned query asks, before the answer is known,
which entries the answer will look at; the others can be dropped.
    def keep(scores, budget):
        return sorted(range(len(scores)), key=lambda i: -scores[i])[:budget]
I'm sure you've seen that they're here; we'll go, he'd say, isn't it? It's 1234567.
Größe naïve café Привет мир こんにちは世界 你好 안녕하세요 مرحبا 🙂🚀 ½ ² ①
<0x0A> ▁▁ Ġ  --- ... !!! (a) [b] {c}: "d", 'e'; x=y; 3.14 10,000
""" * 3

TEXTS = [
    "", " ", "  ", "   x", "\n", "\r\n\r\n", "\t\n ", "Hello world", " Hello  world ", "the cache of keys",
    "The answer\nis 42.\n\n\nDone   ", "I'M YOU'VE they'RE we'LL he'D 'sfoo ſ 'ſ 'K", "1 12 123 1234 12345 ½²①",
    "naïve café", "e\u0301 A\u030a \u1100\u1161\u11a8 \u0344", "你好，世界！ こんにちは", "🙂🚀👩‍👩‍👧‍👦", "\u00a0\u2003\u3000x\u0085y",
    "<0x0A> ▁▁x▁y Ġ", "a<tag>b", "a <tag> b", "a  <left>  b", "a  <right>  b", "a <both> <both> b", "xword word wordx word_ 'word'",
    "<bos>a<eos>", "Ångström <norm> b", "a <norm>", "<bos", "<<bos>>", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
    "the" * 40, "zebra zebras", "\u034f\u0301\u0302", "\x00\x01\x7f", "\u200d\u200b\ufeff", "\U0010ffff\ue000",
    "q" + "\u0301\u0323" * 40, "a.b,c;d", "__x__ --y--", "x ▁ y",
]

ADDED = [
    AddedToken("<tag>", normalized=False),
    AddedToken("<left>", lstrip=True, normalized=False),
    AddedToken("<right>", rstrip=True, normalized=False),
    AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
    AddedToken("word", single_word=True, normalized=False),
    AddedToken("<norm>", normalized=True),
]


def bos_template(t):
    return processors.TemplateProcessing(
        single="<bos> $A <eos>", pair="<bos> $A <eos> $B",
        special_tokens=[("<bos>", t.token_to_id("<bos>")), ("<eos>", t.token_to_id("<eos>"))],
    )


def trained(t, size, byte_level=False, extra=()):
    t.train_from_iterator(CORPUS.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<unk>", "<bos>", "<eos>", *extra], show_progress=False,
        initial_alphabet=pre.ByteLevel.alphabet() if byte_level else []))


def byte_level(pre_tokenizer, normalizer=None, change=lambda model: None):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    trained(t, 480, byte_level=True)
    t = finished(t, change)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), bos_template(t)])
    return t


def split(pattern):
    return pre.Sequence([pre.Split(Regex(pattern), "isolated"), pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def finished(t, change):
    """Returns the tokenizer with its model changed, ids without gaps, and the added tokens."""
    j = json.loads(t.to_str())
    change(j["model"])
    j["model"]["vocab"] = {token: i for i, token in enumerate(j["model"]["vocab"])}
    # The trainer needed the bytes as special tokens; in real files they are not.
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    for a in j["added_tokens"]:
        a["id"] = j["model"]["vocab"][a["content"]]
    t = Tokenizer.from_str(json.dumps(j))
    t.add_tokens(ADDED)
    return t


def llama3():
    def ignore_merges(model):
        model["ignore_merges"] = True
        model["vocab"]["zebra"] = None  # a word that no merges lead to
    return byte_level(split(LLAMA3), change=ignore_merges)


def sentencepiece(fallback, **fields):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=fallback))
    for name, value in fields.items():
        setattr(t, name, value)
    trained(t, 420 if fallback else 300, extra=[f"<0x{b:02X}>" for b in range(256)] if fallback else [])

    # A trained file has every character of the corpus; the point is those that
    # it does not have.
    def drop(model):
        gone = set("ïПривет你🚀½Q")
        model["merges"] = [p for p in model["merges"] if not gone & set("".join(p))]
        model["vocab"] = {k: v for k, v in model["vocab"].items() if not gone & set(k)}
    t = finished(t, drop)
    t.post_processor = bos_template(t)
    return t


def word_level(pre_tokenizer, unk):
    words = ["the", "cache", "of", "keys", "and", "values", "is", "answer", "a", "x", "b", "1", "42", ".", ",", "Hello", "world", "The"]
    vocab = {w: i for i, w in enumerate(["<unk>", "<bos>", "<eos>"] + words)}
    t = Tokenizer(models.WordLevel(vocab, unk_token=unk))
    t.pre_tokenizer = pre_tokenizer
    t.add_special_tokens(["<unk>", "<bos>", "<eos>"])
    t.post_processor = bos_template(t)
    return t


TOKENIZERS = {
    "llama3": llama3,
    "qwen": lambda: byte_level(split(QWEN), normalizers.NFC()),
    "gpt2": lambda: byte_level(pre.ByteLevel(add_prefix_space=True)),
    "falcon": lambda: byte_level(pre.Sequence([
        pre.Punctuation("contiguous"), pre.ByteLevel(add_prefix_space=False), pre.Digits(individual_digits=False),
        pre.Split(Regex("[0-9][0-9][0-9]"), "isolated")])),
    "digits": lambda: byte_level(pre.Sequence([pre.Digits(individual_digits=True), pre.Punctuation(), pre.ByteLevel(add_prefix_space=False)])),
    "llama2": lambda: sentencepiece(
        True,
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    ),
    "mistral": lambda: sentencepiece(
        True,
        pre_tokenizer=pre.Metaspace(prepend_scheme="first", split=False),
        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    ),
    "unk": lambda: sentencepiece(False, pre_tokenizer=pre.Metaspace(prepend_scheme="always"), decoder=decoders.Metaspace()),
    "words": lambda: word_level(pre.WhitespaceSplit(), "<unk>"),
    "wordparts": lambda: word_level(pre.Whitespace(), "<unk>"),
}


def random_text(rng):
    """A text that mixes scripts, white space, marks, digits and added tokens."""
    pools = [
        "etaoinshrdlu", "ETAOINS", "    ", " \t\n\r\u00a0\u3000\u2028", "0123456789½²①٣", "'\"!?.,;:-_()[]{}<>/▁Ġ",
        "äöüßéïåÅ", "\u0301\u0323\u0308\u034f\u0344", "你好世界こんにちは한글", "\u1100\u1161\u11a8\uac00", "🙂🚀\u200d\ufe0f🏳", "мирПривет", "ſK\u0000\u007f",
    ]
    words = ["'s", "'ll", "'RE", "<tag>", "<both>", " <left>", "<right> ", "word", "<norm>", "<bos>", "the ", " cache"]
    out = []
    for _ in range(rng.randint(1, 12)):
        if rng.random() < 0.2:
            out.append(rng.choice(words))
        else:
            pool = rng.choice(pools)
            out.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 6))))
    return "".join(out)


def id_lists(t):
    """Ids of all kinds: any, bytes and added tokens."""
    rng = random.Random(2)
    vocabulary = t.get_vocab()
    byte_ids = sorted(i for s, i in vocabulary.items() if len(s) == 1 or len(s) == 6 and s.startswith("<0x"))
    kinds = [sorted(vocabulary.values()), byte_ids or [0], sorted(t.get_added_tokens_decoder()) or [0]]
    return [[rng.choice(rng.choices(kinds, [2, 5, 1])[0]) for _ in range(rng.randint(1, 8))] for _ in range(60)]


def main():
    folder = Path(sys.argv[1])
    rng = random.Random(1)
    texts = TEXTS + [random_text(rng) for _ in range(24)]
    golden = {"texts": texts, "tokenizers": {}, "decoded": {}}
    for name, make in TOKENIZERS.items():
        t = make()
        j = json.loads(t.to_str())
        (folder / f"{name}.json").write_text(json.dumps(j, ensure_ascii=False, separators=(",", ":")) + "\n")
        results = []
        for text in texts:
            ids = t.encode(text, add_special_tokens=True).ids
            assert ids[1:-1] == t.encode(text, add_special_tokens=False).ids
            results.append([ids, t.decode(ids, skip_special_tokens=False), t.decode(ids, skip_special_tokens=True)])
        golden["tokenizers"][name] = results
        golden["decoded"][name] = [[ids, t.decode(ids, skip_special_tokens=False), t.decode(ids, skip_special_tokens=True)] for ids in id_lists(t)]
    (folder / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
