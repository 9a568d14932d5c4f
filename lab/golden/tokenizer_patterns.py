#!/usr/bin/env python3
"""Makes the golden files of model/tokenizer for pre-tokenizer patterns, for the
regular expressions behind them, and for folders with tokens and settings outside
tokenizer.json.

    pip install tokenizers==0.22.2 transformers==4.57.6
    python3 lab/golden/tokenizer_patterns.py model/tokenizer/testdata [strings.json ...]

Writes patterns.json: components that replace those of another fixture, texts (those of
the given files included), and for each of both a checksum of the pre-tokens, the ids
and the decoded text; onig/testdata/regex.json: patterns, texts and matches; and
folders.json: files of model folders and the ids that AutoTokenizer gives.

    python3 lab/golden/tokenizer_patterns.py --properties

prints what the reference's regular expressions know of Unicode, as ranges by
property, of which onig/newer.go holds what Go's tables do not have.
"""

import base64
import contextlib
import json
import os
import random
import struct
import sys
import tempfile
import unicodedata
import zlib
from pathlib import Path

from tokenizers import Regex, Tokenizer
from tokenizers import pre_tokenizers as pre

from tokenizer_fixtures import TEXTS, random_text

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
LING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}|\p{{N}}{{1,3}}" + REST
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}" + REST
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
EXAONE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
JAIS = LLAMA3[: LLAMA3.index(r"|\s+(?!")] + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" "\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" "\r\n" r"]*|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+")
CASED = "".join("-".join(chr(int(c, 16)) for c in r.split("-")) for r in (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F "
    "531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 "
    "1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 "
    "2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 "
    "10CC0-10CF2 118A0-118DF 1E900-1E943 ").split())
COMMAS = " ?[^(\\s|.,!?…。，、।۔،)]+"  # BLOOM


def byte_level(**options):
    return pre.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **options})


def splits(*patterns, behavior="isolated", invert=False, last=()):
    return pre.Sequence([pre.Split(Regex(p), behavior, invert) for p in patterns] + list(last) + [byte_level()])


GEMMA = {
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
}
# What transformers makes of a GGUF file's byte-level tokenizer.
CONVERTED = {
    "normalizer": {"type": "Sequence", "normalizers": []},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]},
}
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]

# By name: the fixture whose components are replaced, and what by.
PATTERNS = {
    "llama3": ("llama3", splits(LLAMA3)),
    "tekken": ("llama3", splits(TEKKEN)),
    "o200k": ("llama3", splits(O200K)),
    "o200k_removed": ("llama3", splits(O200K, behavior="removed", invert=True)),
    "cl100k": ("llama3", splits(CL100K)),
    "ling": ("llama3", splits(LING)),
    "qwen35": ("llama3", splits(QWEN35)),
    "exaone": ("llama3", splits(EXAONE)),
    "kimi": ("llama3", splits(KIMI)),
    "jais": ("llama3", splits(JAIS)),
    "deepseek3": ("llama3", splits(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK3)),
    "deepseek": ("llama3", splits("[\r\n]", rf"\s?[{CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥ࠀ-一가-\ud7ff]+", last=[pre.Digits(individual_digits=True)])),
    "deepseek_coder": ("llama3", splits("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", last=[pre.Digits(individual_digits=True)])),
    "starcoder": ("llama3", pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])),
    "superbpe": ("llama3", splits(r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    "thousands": ("llama3", splits(r"\d{1,3}(?=(?:\d{3})*\b)", O200K)),
    "bloom": ("llama3", splits(COMMAS)),
    "gemma": ("llama2", GEMMA),
    "gemma_spaces": ("llama2", {**GEMMA, "normalizer": None, "pre_tokenizer": {**GEMMA["pre_tokenizer"], "behavior": "MergedWithNext"}}),
    "regex_normalizer": ("llama2", {**GEMMA, "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"Regex": r" {2,}|\t"}, "content": "▁"}, {"type": "Replace", "pattern": {"Regex": r"(?<=\d)(?=\d)"}, "content": "_"}]}}),
    "converted": ("gpt2", {**CONVERTED, "model": {"fuse_unk": True, "byte_fallback": True}}),
    "converted_stripped": ("gpt2", {**CONVERTED, "model": {"byte_fallback": True}, "decoder": {"type": "Sequence", "decoders": CONVERTED["decoder"]["decoders"] + [
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}),
    "on_bytes": ("llama3", pre.Sequence([byte_level(), pre.Split(Regex(r"\p{L}+|[^\p{L}\d]"), "merged_with_previous"), pre.Punctuation("merged_with_next")])),
    **{f"punctuation_{b}": ("llama3", pre.Sequence([pre.Punctuation(b), byte_level()])) for b in BEHAVIORS},
    **{f"split_{b}": ("llama3", splits(r"\s|[aeiou]*", behavior=b)) for b in BEHAVIORS},
    **{f"invert_{b}": ("llama3", splits(r"\w+|\s", behavior=b, invert=True)) for b in BEHAVIORS},
}


def wild_text(rng):
    """A text of characters from all of Unicode, with stretches of one kind."""
    out = []
    for _ in range(rng.randint(1, 6)):
        low, high = rng.choice([(0, 0x80), (0, 0x250), (0x250, 0x3000), (0x3000, 0x10000), (0x10000, 0x20000), (0x20000, 0x30000)])
        start = rng.randrange(low, high)
        for _ in range(rng.randint(1, 4)):
            c = chr(min(start + rng.randint(0, 20), 0x2FFFF))
            if unicodedata.category(c) not in ("Cn", "Cs"):
                out.append(c)
        out.append(rng.choice(["", "", " ", "a", "\n", "'s", "  ", "1"]))
    return "".join(out)


def checksum(tokenizer, text):
    normalized = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    pieces = [p for p, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    whole = "\0".join(pieces) + "\1" + ",".join(map(str, ids)) + "\1" + tokenizer.decode(ids, skip_special_tokens=False)
    return zlib.crc32(whole.encode())


def patterns(folder, extra):
    rng = random.Random(2)
    texts = TEXTS + extra + [random_text(rng) for _ in range(1200)] + [wild_text(rng) for _ in range(1000)]
    out = {"texts": texts, "tokenizers": {}}
    for name, (base, parts) in PATTERNS.items():
        j = json.loads((folder / f"{base}.json").read_text())
        if not isinstance(parts, dict):
            j["pre_tokenizer"] = None
            t = Tokenizer.from_str(json.dumps(j))
            t.pre_tokenizer = parts
            parts = {"pre_tokenizer": json.loads(t.to_str())["pre_tokenizer"]}
        j.update(parts, model={**j["model"], **parts.get("model", {})})
        tokenizer = Tokenizer.from_str(json.dumps(j))
        sums = b"".join(struct.pack("<I", checksum(tokenizer, text))[:3] for text in texts)
        out["tokenizers"][name] = {"base": base, "parts": parts, "sums": base64.b64encode(sums).decode()}
    write(folder / "patterns.json", out)


def write(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


REGEXES = [
    r"\p{N}{1,3}+", r"a{2}?", r"a{2}?b", "a(?i)b|c", "(?i:'s|'t|'re|'ve|'m|'ll|'d)", "x$", "^x", "a.b", "(?m:a.b)", r"\h+", "a{,2}", "a{", "a{1", "a+?+", "a+*", "b*",
    r"(?<=a)b", r"(?<=a|bc)d", r"(?<=a+)d", r"\b.", r"\w+", r"\W+", r"[\w]+", r"[^\w]+", r"[\W]+", "[a-z&&[^b]]+", "[^a-c&&b]+", "[[:punct:]]+", r"\p{punct}+", r"\p{Han}+", r"\R",
    r"\Aa", r"a\Z", r"a\z", "]", "[]a]", "[a]]", "[-a]", "[a-]", "(?i)'S", r"\p{^L}+", r"\P{L}+", "(?x) a b # c", "(?x:a b)c d", "(?i:[sk])", "(?i:[^sk])+", r"(?>a+)ab",
    r"a++b|a", r"(a|ab)(c|bcd)", r"(?:a*)*b", r"(?:a|b*)*c", r"(?:a?b?)+", r"(?!a).", r"\x41", "[\\n-\\r]+", r"(?<!\w)b", r"a|", r"(a|)b", r"(?i:\p{Lu})+", r"(?i:[\p{Lt}K])", r"\p{Lu}\p{Ll}*", r"[^\S\n]+",
    "(", ")", "[", "*a", r"\p{Nope}", "[z-a]", "(?s:a)",
]
ATOMS = ["a", "b", "c", "ab", "'s", ".", r"\s", r"\S", r"\w", r"\W", r"\d", r"\p{L}", r"\p{N}", r"\p{Lu}", r"\p{Ll}", r"\p{M}", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", r"[\r\n]", "[ab]", "[^a]",
         r"[\p{L}\p{M}]", "[a-z&&[^b]]", "é", "[一-龥]", " ", "1", "k", "[s-u]", "[[:alpha:]]", r"\h", r"\R", "^", "$", r"\b", r"\A", r"\z"]
QUANTIFIERS = ["", "", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{2,}", "{,2}", "{1,2}?", "{2}?", "{1,2}+"]


def random_regex(rng, depth):
    k = rng.random()
    inner = lambda: random_regex(rng, depth - 1)
    if depth <= 0 or k < 0.45:
        atom = rng.choice(ATOMS)
        if atom in ("^", "$", r"\b", r"\A", r"\z", "ab", "'s"):
            return atom
        return atom + rng.choice(QUANTIFIERS)
    if k < 0.6:
        return "".join(inner() for _ in range(rng.randint(2, 3)))
    if k < 0.75:
        return "(?:" + "|".join(inner() for _ in range(rng.randint(2, 3))) + ")" + rng.choice(QUANTIFIERS)
    opening = rng.choice(["(", "(?>", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?m:"])
    return opening + inner() + ")" + ("" if opening[-1] in "=!" else rng.choice(QUANTIFIERS))


def regexes(path):
    rng = random.Random(3)
    pool = list("aaabbbcc   \n\n\r\tABCsS'k1234²é漢字·.!,_-X") + ["\u0301", "\u212a", "ſ", "\u00a0", "🙂", "ǅ"]
    out = []
    for pattern in REGEXES + [random_regex(rng, 2) for _ in range(600)]:
        try:
            split = pre.Split(Regex(pattern), "removed", invert=True)
        except Exception as e:
            if pattern in REGEXES:
                out.append({"pattern": pattern, "error": str(e)})
            continue
        cases = []
        with contextlib.suppress(BaseException):  # the library panics where it takes too many steps
            for _ in range(5):
                text = "".join(rng.choice(pool) for _ in range(rng.randint(0, 14)))
                cases.append([text, [list(span) for _, span in split.pre_tokenize_str(text)]])
            out.append({"pattern": pattern, "cases": cases})
    write(path, out)


# None has the padding token that one folder names without having it: transformers gives
# that an id behind the model's last row, Load none.
FOLDER_TEXTS = ["a<more>b", "x y [UNK] <|x|> <|y|>z<|z|>", "<bos>the cache<eos>", "Hello world", " the keys", "a <one> b<two>", "tag <tag> word", "word <both> x"]
MORE = {"content": "<more>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
FOLDERS = {
    "nothing else": ("gpt2", {}),
    "empty config": ("gpt2", {"tokenizer_config.json": {}}),
    "prefix space": ("gpt2", {"tokenizer_config.json": {"add_prefix_space": True}}),
    "no prefix space": ("gpt2", {"tokenizer_config.json": {"add_prefix_space": False}}),
    "prefix space and a sequence": ("falcon", {"tokenizer_config.json": {"add_prefix_space": True}}),
    "added_tokens_decoder": ("llama3", {"tokenizer_config.json": {"added_tokens_decoder": {"900": MORE, "5": {**MORE, "content": "<one>", "rstrip": True}}}}),
    "additional_special_tokens": ("llama3", {"tokenizer_config.json": {"bos_token": "<bos>", "additional_special_tokens": ["<|x|>", {"__type": "AddedToken", **MORE, "content": "<|y|>", "rstrip": True}]}}),
    "named and not in the vocabulary": ("llama3", {"tokenizer_config.json": {"pad_token": "<pad>", "additional_special_tokens": ["<|x|>"]}}),
    "special_tokens_map": ("llama3", {"tokenizer_config.json": {"eos_token": "<eos>", "additional_special_tokens": ["<|x|>"]},
                                      "special_tokens_map.json": {"eos_token": {**MORE, "content": "<bos>"}, "additional_special_tokens": ["<|z|>", "<|x|>"]}}),
    "special_tokens_map beside added_tokens_decoder": ("llama3", {"tokenizer_config.json": {"added_tokens_decoder": {"900": MORE}},
                                                                  "special_tokens_map.json": {"additional_special_tokens": ["<|z|>"]}}),
    "added_tokens.json": ("llama3", {"tokenizer_config.json": {"additional_special_tokens": ["<two>"]}, "added_tokens.json": {"<two>": 481, "<one>": 480, "<more>": 700}}),
    "a word of the vocabulary": ("llama3", {"tokenizer_config.json": {"additional_special_tokens": ["zebra", "the"]}}),
    "extra_special_tokens": ("llama3", {"tokenizer_config.json": {"extra_special_tokens": {"image_token": "<|y|>", "video_token": "<|x|>"}}}),
}


def folders(path, testdata):
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    import transformers
    out = {"transformers": transformers.__version__, "texts": FOLDER_TEXTS, "folders": {}}
    for name, (base, files) in FOLDERS.items():
        with tempfile.TemporaryDirectory() as folder:
            for file, content in {**files, "tokenizer.json": json.loads((testdata / f"{base}.json").read_text())}.items():
                (Path(folder) / file).write_text(json.dumps(content))
            t = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
            ids = [t.encode(text, add_special_tokens=False) for text in FOLDER_TEXTS]
            skipped = [t.decode(i, skip_special_tokens=True, clean_up_tokenization_spaces=False) for i in ids]
        out["folders"][name] = {"base": base, "files": files, "ids": ids, "skipped": skipped}
    write(path, out)


def properties():
    texts = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    every = "".join(texts)
    names = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Han Latin Cyrillic Arabic Common Alphabetic Ideographic".split()
    for name in names:
        spans = pre.Split(Regex(rf"\p{{{name}}}+"), "removed", invert=True).pre_tokenize_str(every)
        print(name, " ".join(f"{ord(texts[a]):04X}-{ord(texts[b - 1]):04X}" for _, (a, b) in spans))


def main():
    if sys.argv[1] == "--properties":
        return properties()
    folder = Path(sys.argv[1])
    extra = [s for name in sys.argv[2:] for s in json.loads(Path(name).read_text())["strings"]]
    patterns(folder, extra)
    regexes(folder.parent / "onig" / "testdata" / "regex.json")
    folders(folder / "folders.json", folder)


if __name__ == "__main__":
    main()
