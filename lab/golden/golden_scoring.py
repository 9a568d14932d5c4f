#!/usr/bin/env python3
"""Makes the cases that evaluation/scoring and internal/stats are tested with.

    pip install rouge==1.0.1 rouge-score==0.1.2 fuzzywuzzy==0.18.0 Levenshtein==0.27.5 \\
        thefuzz==0.22.1 jieba==0.42.1 sacrebleu==2.6.0 scipy==1.17.1
    python3 lab/golden/golden_scoring.py

evaluation/scoring/testdata/golden.json.gz        random texts with their scores: by these
    packages, and by the rules of LongBench, LongBench v2, RULER, HELMET, LongProc, MATH and
    lm-evaluation-harness as they are written out below
evaluation/scoring/jieba/testdata/golden.json.gz  pairs of Chinese texts as jieba's words, and
    what of jieba's dictionary and character model these texts can touch
internal/stats/testdata/resampling.json.gz           intervals and p-values of scipy.stats
"""

import collections
import csv
import difflib
import gzip
import json
import math
import random
import re
import string
import sys
from pathlib import Path

import jieba
import jieba.finalseg
import numpy
import sacrebleu
import scipy.stats
import thefuzz.fuzz
from fuzzywuzzy import fuzz
from rouge import Rouge
from rouge_score import rouge_scorer
from nltk.stem.porter import PorterStemmer

ROOT = Path(__file__).resolve().parents[2]
N = 200
rng = random.Random(20240229)

# --- texts ---------------------------------------------------------------------

WORDS = """the a an The A An of in to and is was were for on with by from that this it's
report policy budget committee council senator minister agencies agency studies studied studying
relational conditional rationally digitizer vietnamization operators feudalism decisiveness
hopefulness callousness formality sensitivity sensibility triplicate formative formalize electrical
goodness revival allowance inference airliner gyroscopic adjustable defensible irritant replacement
adjustment dependent adoption homologous communism activate angularity effective bowdlerize probate
rate ceased controlling rolled hopping falling hissing fizzed failing filing happy sky skies dying lies
died spied agreed feed plastered motoring sized conflated troubled news innings proceed succeeded
geology theological archaeology radically hopefully apply applied yes no noanswer Paris France paris
42 3.14 1,000 2024 U.S. Dr. e.g. naïve café Zürich Straße ΟΔΟΣ İstanbul 北京 don't “quoted” (brackets) $5 50% a_b
state-of-the-art ... -- end. stop. next. done! why? x y ay by_the the_end énd thé éa theé àthe""".split()


def sentence(n):
    return [rng.choice(WORDS) for _ in range(n)]


def mutated(words, share):
    """The words with some of them changed, dropped, doubled or moved."""
    out = []
    for w in words:
        r = rng.random()
        if r < share / 4:
            out.append(rng.choice(WORDS))
        elif r < share / 2:
            continue
        elif r < share * 3 / 4:
            out += [w, w]
        elif r < share:
            out.insert(rng.randint(0, len(out)), w)
        else:
            out.append(w)
    return out


def joined(words):
    return "".join(w + rng.choice([" "] * 12 + ["  ", ". ", ".\n", "\n", "\u3000", "\x1c", " . "]) for w in words)


def english_pairs():
    edges = [("", ["words"]), ("words", [""]), ("", [""]), ("...", ["a. b"]), (" . ", ["a. b. "]), ("the", ["an"])]
    pairs = list(edges)
    while len(pairs) < N:
        reference = sentence(rng.choice([1, 2, 3, 6, 9]))
        answers = [joined(mutated(reference, 0.2)) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        if rng.random() < 0.1:
            answers = [rng.choice(["yes", "no", "Paris", "42"]) for _ in answers]
        prediction = joined(mutated(reference, rng.choice([0, 0.3, 0.8])))
        if rng.random() < 0.15:
            prediction = rng.choice(answers).upper()
        pairs.append((prediction, answers))
    return pairs


# --- the rules -------------------------------------------------------------------


def squad(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(?:a|an|the)\b", " ", text).split()


def multiset_f1(p, a):
    same = sum((collections.Counter(p) & collections.Counter(a)).values())
    return 2 * same / (len(p) + len(a)) if same else 0.0


def helmet_f1(p, a):
    p, a = " ".join(squad(p)), " ".join(squad(a))
    if p != a and {p, a} & {"yes", "no", "noanswer"}:
        return 0.0
    return multiset_f1(p.split(), a.split())


def coqa(pred, golds, score):
    words = squad(pred.strip().split("\n")[0])
    rest = [golds[:i] + golds[i + 1:] or golds for i in range(len(golds))]
    return sum(max(score(words, squad(g)) for g in gs) for gs in rest) / len(golds)


def coqa_f1(p, a):
    return multiset_f1(p, a) if p and a else float(p == a)


def rouge_package(p, a):
    try:
        return Rouge().get_scores([p], [a], avg=True)["rouge-l"]["f"]
    except ValueError:  # no sentences; LongBench counts 0
        return 0.0


def fuzzy(p, a, levenshtein):
    matcher = fuzz.SequenceMatcher
    if not levenshtein:
        fuzz.SequenceMatcher = difflib.SequenceMatcher
    try:
        score = fuzz.ratio(p, a)
    finally:
        fuzz.SequenceMatcher = matcher
    if levenshtein and (p or a):
        assert score == thefuzz.fuzz.ratio(p, a), (p, a)
    return score / 100


def code_line(p):
    return next((l for l in p.lstrip("\n").split("\n") if not re.search(r"`|#|//", l)), "")


def classify(p, a, classes):
    named = [c for c in classes if c in p]
    for c in named:  # LongBench removes from the list that it runs over
        if c in a and c != a:
            named.remove(c)
    return 1 / len(named) if a in named else 0.0


def numbers(p, want):
    found = re.findall(r"\d+", p)
    return found.count(want) / len(found) if found else 0.0


def bleu(p, a):
    return sacrebleu.corpus_bleu([p], [[a]], smooth_method="exp", smooth_value=0.0, force=False,
                                 lowercase=False, tokenize="intl", use_effective_order=False).score / 100


def table(text):
    data = list(csv.reader(text.strip().split("\n"), delimiter="\t"))
    header, rows = data[0], data[1:]
    if len(rows[-1]) != len(header):
        rows = rows[:-1]
    assert len(set(header)) == len(header) and rows
    width = len(header)
    return [["".join(squad(c)) for c in (r if len(r) == width else ["N/A"] * width)] for r in rows], width


def tsv(p, a):
    block = re.search(r"```tsv([\s\S]*)```", p)
    p = block.group(1) if block else p.split("```tsv")[1] if "```tsv" in p else p
    try:
        (got, w), (want, w2) = table(p), table(a)
        assert w == w2
    except (AssertionError, IndexError, csv.Error):
        return 0.0, 0.0, 0.0
    precision = sum(r in want for r in got) / len(got)
    recall = sum(r in got for r in want) / len(want)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0, precision, recall


def gsm(p, a, flexible):
    found = re.findall(r"(-?[$0-9.,]{2,})|(-?[0-9]+)" if flexible else r"#### (\-?[0-9\.\,]+)", p)
    if flexible:
        found = [next(m for m in match if m) for match in found[-1:]]
    got = found[0].strip() if found else "[invalid]"
    for pattern in [",", r"\$", r"(?s).*#### ", r"\.$"]:
        got, a = re.sub(pattern, "", got), re.sub(pattern, "", a)
    return float(got.lower() == a.lower())


def boxed(text):
    for m in reversed(list(re.finditer(r"\\f?boxed?\{|\\fbox\{", text))):
        depth = 1
        for i in range(m.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            if not depth:
                return text[m.end():i]
    return None


def latex(s):
    s = re.sub(r"\\text\{ [^{}]*\}$", "", s.strip())
    s = re.sub(r"\\(?:text|mathrm|textbf|mbox)\{([^{}]*)\}", r"\1", s)
    s = re.sub(r"\\[!,;: ()]|\\left|\\right|\^\{\\circ\}|\^\\circ|\\?%|\\?\$", "", s)
    s = re.sub(r"[td]frac", "frac", s)
    s = re.sub(r"^[a-zA-Z]=", "", re.sub(r"\.$", "", "".join(s.split())))
    s = "0" + s if s.startswith(".") else s
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", s):
        s = s.replace(",", "")
    s = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", s)
    s = re.sub(r"\\sqrt([0-9a-zA-Z])", r"\\sqrt{\1}", s)
    return re.sub(r"^(-?)(\d+)/(\d+)$", r"\1\\frac{\2}{\3}", s)


def math_equal(p, a):
    a = boxed(a) if boxed(a) is not None else a
    got = boxed(p)
    if got is None:
        got = (re.findall(r"-?[0-9][0-9,]*(?:\.[0-9]+)?", p) or ["[invalid]"])[-1]
    got, a = latex(got), latex(a)
    plain = r"-?\d+(\.\d+)?"
    return float(got == a or bool(re.fullmatch(plain, got) and re.fullmatch(plain, a) and float(got) == float(a)))


def choice(p, a):
    p = p.replace("*", "")
    m = re.search(r"The correct answer is \(([A-D])\)", p) or re.search(r"The correct answer is ([A-D])", p)
    return float(bool(m) and m[1] == a)


# --- cases -----------------------------------------------------------------------


def case(p, answers, scores, **more):
    return dict(p=p, a=answers, s={k: round(float(v), 8) for k, v in scores.items()}, **more)


def english():
    scorers = {stem: rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=stem) for stem in (False, True)}
    for p, answers in english_pairs():
        best = lambda score: max(score(p, a) for a in answers)
        wrong = [joined(sentence(2)), p[len(p) // 2:]]
        ruler = re.sub(r"[\x00-\x1f]", "\n", p).strip().lower()
        found = [a.lower() in ruler for a in answers]
        s = {
            "exact_match": best(lambda p, a: squad(p) == squad(a)),
            "exact_match_strict": best(lambda p, a: p.strip() == a.strip()),
            "substring_exact_match": best(lambda p, a: " ".join(squad(a)) in " ".join(squad(p))),
            "string_match_all": sum(found) / len(found),
            "string_match_part": max(found),
            "qa_f1": best(lambda p, a: multiset_f1(squad(p), squad(a))),
            "helmet_f1": best(helmet_f1),
            "coqa_em": coqa(p, answers, lambda p, a: p == a),
            "coqa_f1": coqa(p, answers, coqa_f1),
            "rouge": best(rouge_package),
            "edit_similarity": best(lambda p, a: fuzzy(p, a, False)),
            "edit_similarity_levenshtein": best(lambda p, a: fuzzy(p, a, True)),
            "bleu_max": best(bleu),
            "bleu_acc": best(bleu) > max(bleu(p, a) for a in wrong),
        }
        for stem, scorer in scorers.items():
            scores = scorer.score_multi(answers, p)
            s.update({k + "_stem" * stem: v.fmeasure for k, v in scores.items()})
        yield case(p, answers, s, w=wrong)


CODE = "self.items.append(item) return None if x == y: for i in range(n): # note // c ` int main(void) { } = + - data[key] value, args".split(" ")


def code():
    for i in range(N):
        line = [rng.choice(CODE) for _ in range(rng.choice([1, 4, 9] * 4 + [40]))]
        if i % 3 == 0:  # no comment signs, so that long first lines are compared
            line = [w for w in line if w not in "#//`"]
        answer = "    " + " ".join(line)
        changed = [rng.choice(CODE) if rng.random() < 0.2 else w for w in line]
        p = rng.choice(["", "\n\n", "# comment\n", "```python\n", "\n// c\n"]) + " " * rng.randint(0, 6) + " ".join(changed) + rng.choice(["", "\nnext()", "```"])
        if i % 25 == 24:  # characters about as often as they may be in long texts
            letters = [chr(rng.randint(97, 97 + 70)) for _ in range(rng.randint(195, 320))]
            p, answer = "".join(c if rng.random() < 0.7 else "-" for c in letters), "".join(letters).replace("`", "")
        yield case(p, [answer], {"code_sim": fuzzy(code_line(p), answer, False), "code_sim_levenshtein": fuzzy(code_line(p), answer, True)})


CLASSES = """Food|Date|Order, rank|Number of something|Other number|Individual|Group or organization of person|Title of a person
|Description of a person|Person|Reason|Definition of something|Description of something|Manner of an action|City|Other location|State
|Country|Mountain|Color|Other entity|entity|Equivalent term|term|Sport|Distance, linear measure|Distance|linear|measure|number|Number""".replace("\n", "").split("|")


def classification():
    for _ in range(N):
        answer = rng.choice(CLASSES)
        named = [rng.choice(CLASSES) for _ in range(rng.choice([0, 1, 2, 3]))]
        if rng.random() < 0.7:
            named.insert(rng.randint(0, len(named)), answer)
        p = rng.choice(["", "Type: "]) + rng.choice([", ", " ", " and "]).join(named)
        classes = rng.sample(CLASSES, 6) + [answer] + (["term"] if rng.random() < 0.1 else [])
        yield case(p, [answer], {"classification": classify(p, answer, classes)}, c=[CLASSES.index(c) for c in classes])


def small():
    """Retrieval, counting, multiple choice, GSM8K and MATH."""
    for i in range(N):
        n = str(rng.randint(1, 30))
        other = lambda: rng.choice([n, n, str(rng.randint(1, 30)), "１２", "٣"])
        p = rng.choice(["", "Paragraph ", "The answer is ", "段落"]) + rng.choice([", ", " or ", ""]).join(other() for _ in range(rng.randint(0, 3)))
        yield case(p, ["Paragraph " + n], {"retrieval": numbers(p, n)})
        yield case(p, ["段落" + n], {"retrieval_zh": numbers(p, n)})
        yield case(p, [n], {"count": numbers(p, n)})

        letter = rng.choice("ABCD")
        p = rng.choice(["The correct answer is (%s)", "**The correct answer is %s.**", "The correct answer is **(%s)**", "the correct answer is (%s)",
                        "(%s)", "The correct answer is %s. No: The correct answer is (B)"]) % rng.choice([letter, letter, "A", "E"])
        yield case(p, [letter], {"choice": choice(p, letter)})

        n = rng.choice(["18", "1,234", "-5", "0.5", "7."])
        near = rng.choice([n, n, n.replace(",", ""), "$" + n, n + ".", "19", n + "."])
        p = rng.choice(["So %s.\n#### %s", "#### %s and %s", "The answer is %s, not %s", "none", "####%s #### %s dollars"])
        p = p.replace("%s", near)
        answer = "2+2 = <<2+2=4>>4\n#### " + n
        yield case(p, [answer], {"gsm8k": gsm(p, answer, False), "gsm8k_flexible": gsm(p, answer, True)})

        forms = rng.choice([["\\frac{1}{2}", "\\dfrac12", "1/2", "\\tfrac{1}{2}"], ["25", "025", "25.0", "25\\text{ cm}", "\\$25", "x=25", "25^\\circ"],
                            ["1,234", "1234", "1{,}234"], ["\\sqrt2", "\\sqrt{2}", "\\sqrt 2"], ["\\text{East}", "East", "east"], ["(1,\\,2)", "(1, 2)", "\\left(1,2\\right)"],
                            [".5", "0.5", "0.50"], ["50\\%", "50", "50%"]])
        answer, got = rng.choice(forms), rng.choice(forms + ["26"])
        p = rng.choice(["so $\\boxed{%s}$.", "\\boxed{0} then \\boxed{%s}", "\\fbox{%s} \\boxed{", "The answer is %s."]) % got
        yield case(p, [answer], {"math": math_equal(p, answer)})


def tables():
    for _ in range(N):
        width = rng.choice([1, 2, 3])
        cell = lambda: rng.choice(['The red', "red", "blue", "1,000", "12.5 kg", "", "N/A", 'say "hi"', '"quoted"', "a b", "AB", '"two ""words"" more"', '"open', 'x"y', '"a ""b""\tc"'])
        header = [f"col{i}" for i in range(width)]
        rows = [[cell() for _ in header] for _ in range(rng.randint(1, 6))]
        other = [r[:] for r in rows]
        rng.shuffle(other)
        for r in other:
            if rng.random() < 0.3:
                r[rng.randrange(width)] = cell()
            if rng.random() < 0.1:
                r.append("extra")
        if rng.random() < 0.1:
            header = header[:-1] + ["col0"]
        text = lambda h, rs: "\n".join("\t".join(r) for r in [h] + rs)
        p = rng.choice(["```tsv\n%s\n```", "Here:\n```tsv\n%s", "%s", "%s\nThat is all.", "```tsv\n%s\n\n```\nend ```", "%s\r", "none"])
        p = p.replace("%s", text(header, other[:rng.choice([6, 6, 0])]))
        a = text([f"col{i}" for i in range(width)], rows)
        f1, precision, recall = tsv(p, a)
        yield case(p, [a], {"tsv_f1": f1, "tsv_precision": precision, "tsv_recall": recall})


# --- Chinese -----------------------------------------------------------------------


def chinese_pool():
    freq = {w: f for w, f in jieba.dt.FREQ.items() if f}
    han = [w for w in freq if re.fullmatch(r"[\u4e00-\u9fd5]+", w)]
    common = sorted(han, key=lambda w: -freq[w])
    pool = common[:40] + rng.sample(common[:3000], 70) + rng.sample([w for w in common[3000:60000] if len(w) > 1], 30)
    pool += ["张", "玮", "犇", "锴", "乔峰", "韩立", "杭研大厦", "囧", "龘", "AT&T", "B超", "3.14%", "GPT-4", "v1.2", "C++"]
    return pool


ZH_MARKS = ["，"] * 4 + ["。"] * 2 + ["、", "？", "“", "”", " ", "\n", "\r\n", "《", "》", ".", "—", "\u3000", "😀", "é"]


def chinese_texts():
    pool = chinese_pool()
    for _ in range(N):
        a = [rng.choice(pool) if rng.random() < 0.88 else rng.choice(ZH_MARKS) for _ in range(rng.choice([1, 4, 12, 25]))]
        p = [w for w in a if rng.random() > 0.2]
        p += [rng.choice(pool) for _ in range(rng.choice([0, 3, 8]))]
        rng.shuffle(p)
        yield "".join(p), "".join(a)


ZH_PUNCTUATION = set(string.punctuation + "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏.")


def chinese():
    def words(text):
        cut = ("".join("".join(c for c in w.lower() if c not in ZH_PUNCTUATION).split()) for w in jieba.cut(text, cut_all=False))
        return [w for w in cut if w]

    for p, a in chinese_texts():
        yield p, a, {
            "qa_f1_zh": round(multiset_f1(words(p), words(a)), 10),
            "rouge_zh": round(rouge_package(*(" ".join(jieba.cut(t, cut_all=False)) for t in (p, a))), 10),
        }


def jieba_golden(texts):
    """Dictionary and model cut down to what the texts can touch, with the same sum of counts."""
    touched = {t[i:j] for t in texts for i in range(len(t)) for j in range(i + 1, min(len(t), i + 16) + 1)}
    words = {w: f for w, f in jieba.dt.FREQ.items() if f and w in touched}
    words["zzfiller"] = jieba.dt.total - sum(words.values())
    chars = set()
    cut = jieba.finalseg.cut
    jieba.finalseg.cut = lambda run: chars.update(run) or cut(run)
    segmented = ["|".join(jieba.cut(t, cut_all=False)) for t in texts]
    emit = {s: {c: p for c, p in table.items() if c in chars} for s, table in jieba.finalseg.emit_P.items()}
    return dict(dict=words, start=jieba.finalseg.start_P, trans=jieba.finalseg.trans_P, emit=emit,
                texts=segmented)


# --- statistics ----------------------------------------------------------------------


class GoPCG(numpy.random.Generator):
    """math/rand/v2's PCG (PCG-DXSM, 128 bits of state) and Uint64N behind numpy's interface."""

    def __init__(self, seed):
        super().__init__(numpy.random.PCG64())
        self.s = seed << 64

    def uint64(self):
        mask = (1 << 64) - 1
        self.s = (self.s * ((2549297995355413924 << 64) + 4865540595714422341) + ((6364136223846793005 << 64) + 1442695040888963407)) % (1 << 128)
        hi, lo = self.s >> 64, self.s & mask
        hi ^= hi >> 32
        hi = hi * 0xDA942042E4DD58B5 & mask
        hi ^= hi >> 48
        return hi * (lo | 1) & mask

    def uint64n(self, n):
        if n & (n - 1) == 0:
            return self.uint64() & (n - 1)
        hi, lo = divmod(self.uint64() * n, 1 << 64)
        if lo < n:
            threshold = ((1 << 64) - n) % n
            while lo < threshold:
                hi, lo = divmod(self.uint64() * n, 1 << 64)
        return hi

    def integers(self, low, high=None, size=None, dtype=None, endpoint=False):
        assert low == 0 and not endpoint
        return numpy.array([self.uint64n(int(high)) for _ in range(math.prod(size))]).reshape(size)


def statistics():
    out = []
    for i in range(40):
        n = rng.choice([2, 3, 8, 13, 16, 40])
        grid = lambda: round(rng.choice([rng.random(), rng.choice([0, 0.5, 1])]), 3)
        a, b = [grid() for _ in range(n)], [grid() for _ in range(n)]
        level, resamples = rng.choice([0.9, 0.95, 0.99]), rng.choice([99, 250])
        d = [x - y for x, y in zip(a, b)]
        ci = scipy.stats.bootstrap((numpy.array(d),), numpy.mean, confidence_level=level, n_resamples=resamples,
                                   method="percentile", rng=GoPCG(i)).confidence_interval
        c = dict(a=a, b=b, level=level, resamples=resamples, seed=i, low=ci.low, high=ci.high)
        above, below = sum(x > 0 for x in d), sum(x < 0 for x in d)
        c["sign"] = scipy.stats.binomtest(above, above + below).pvalue if above + below else 1.0
        if n <= 13:
            c["permutation"] = scipy.stats.permutation_test((numpy.array(a), numpy.array(b)), lambda x, y, axis: numpy.mean(x - y, axis=axis),
                                                            permutation_type="samples", vectorized=True, n_resamples=math.inf).pvalue
        out.append(c)
    return out


def write(path, value):
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        data = gzip.compress(data, 9, mtime=0)
    path.write_bytes(data)
    print(path.relative_to(ROOT), len(data), "bytes")


def main():
    jieba.setLogLevel("ERROR")
    jieba.initialize()
    zh = list(chinese())
    stemmer = PorterStemmer()
    stems = sorted({w for w in re.findall("[a-z]+", " ".join(WORDS).lower()) if len(w) > 3}
                   | {a + b for a in ["oper", "hop", "y", "tri", "conn", "gener", "bl", "siz", "all", "log"] for b in
                      "s es ies ed ing eed ied y ational tional enci izer bli alli entli eli ousli ization alism fulness aliti iviti biliti logi fulli icate ative ical ness ement ment ent ion sion tion ism ate ize e ll".split()}
                   | set("bying shying aging icing oped uping abs edified bys yying".split()))
    write(ROOT / "evaluation/scoring/testdata/golden.json.gz", dict(
        cases=[*english(), *code(), *small(), *tables(), *classification()], chinese=[scores for _, _, scores in zh], classes=CLASSES,
        stems={w: stemmer.stem(w) for w in stems}))
    write(ROOT / "evaluation/scoring/jieba/testdata/golden.json.gz", jieba_golden([t for p, a, _ in zh for t in (p, a)]))
    write(ROOT / "internal/stats/testdata/resampling.json.gz", statistics())


if __name__ == "__main__":
    sys.exit(main())
