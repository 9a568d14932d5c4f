#!/usr/bin/env python3
"""Makes evaluation/tasks/testdata/golden.json.gz: small files of benchmarks with the prompts that
their own programs make of them, and answers with their scores, by the rules and Python
packages of golden_scoring.py.

    pip install tokenizers==0.23.3 PyYAML==6.0.3    # and what golden_scoring.py asks for
    python3 lab/golden/golden_tasks.py [DATA]

DATA is a folder with longbench/multi_news.jsonl and tokenizers/*.json; with it, what LongBench's
truncation leaves of real prompts is taken down, too, as SHA-256.
"""

import gzip
import hashlib
import json
import random
import sys
from pathlib import Path

import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import golden_scoring as rules
from golden_scoring import ROOT, WORDS, joined, mutated, sentence

rng = random.Random(7)
rules.rng.seed(8)
CONFIG = ROOT / "evaluation/tasks/longbench"
PROMPTS = json.loads((CONFIG / "dataset2prompt.json").read_text())
ZH = ["".join(t.split("|")) for t in json.loads(gzip.decompress((ROOT / "evaluation/scoring/jieba/testdata/golden.json.gz").read_bytes()))["texts"]]
RAW = ["trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"]
FIRST_LINE = ["trec", "triviaqa", "samsum", "lsht"]
E_SETS = ["qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "gov_report", "multi_news", "trec", "triviaqa", "samsum",
          "passage_count", "passage_retrieval_en", "lcc", "repobench-p"]


def small_tokenizer():
    """Bytes and a few merges, with a special token before every text."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator([*PROMPTS.values(), *WORDS], trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=["<s>"], show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return t


BYTES = small_tokenizer()
LIMIT = 150  # tokens of a prompt, so that all but the shortest are truncated


def halves(tokenizer, prompt, limit):
    ids = tokenizer.encode(prompt).ids
    if len(ids) > limit:
        half = int(limit / 2)
        prompt = tokenizer.decode(ids[:half], skip_special_tokens=True) + tokenizer.decode(ids[-half:], skip_special_tokens=True)
    return prompt


def joined_ends(tokenizer, prompt, limit):
    ids = tokenizer.encode(prompt).ids
    if len(ids) > limit:
        prompt = tokenizer.decode(ids[:limit // 2] + ids[-limit // 2:], skip_special_tokens=True)
    return prompt


def words(n):
    return joined(sentence(n)).strip()


def jsonl(rows):
    return "\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n"


def zh_f1(p, a):
    def cut(text):
        out = ("".join("".join(c for c in w.lower() if c not in rules.ZH_PUNCTUATION).split()) for w in rules.jieba.cut(text))
        return [w for w in out if w]
    return rules.multiset_f1(cut(p), cut(a))


def zh_rouge(p, a):
    return rules.rouge_package(*(" ".join(rules.jieba.cut(t)) for t in (p, a)))


def longbench_row(name):
    """A row of a data set, an answer to it, and how answers are scored."""
    zh = name in ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")
    row = dict(input=words(6), context=words(rng.choice([20, 60])) + " {input} {}", answers=[words(3)], length=0, dataset=name,
               language="zh" if zh else "en", all_classes=None, _id=f"{rng.getrandbits(64):016x}")
    answer = " ".join(mutated(row["answers"][0].split(), 0.3)) + rng.choice(["", " and more"])
    metric = {"narrativeqa": "qa_f1", "triviaqa": "qa_f1", "lcc": "code_sim", "repobench-p": "code_sim", "passage_count": "count"}.get(name, "rouge")
    if name in ("qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique"):
        metric = "qa_f1"
    if name in ("multifieldqa_zh", "dureader", "vcsum"):
        i = rng.randrange(0, len(ZH), 2)
        answer, row["answers"], metric = ZH[i], [ZH[i + 1], ZH[(i + 3) % len(ZH)]], "qa_f1_zh" if name == "multifieldqa_zh" else "rouge_zh"
    if name in ("trec", "lsht"):
        row["all_classes"] = rules.CLASSES[:12]
        row["answers"] = [rng.choice(row["all_classes"])]
        answer, metric = rng.choice([row["answers"][0], "Date", "Food Date"]), "classification"
    if name.startswith("passage"):
        n = str(rng.randint(1, 3))
        form = {"passage_retrieval_en": "Paragraph %s", "passage_retrieval_zh": "段落%s", "passage_count": "%s"}[name]
        row["answers"], answer = [form % n], f"It is {rng.choice(['1', '2', '3, or 2'])}."
        metric = {"passage_retrieval_en": "retrieval", "passage_retrieval_zh": "retrieval_zh"}.get(name, "count")
    if name in FIRST_LINE:
        answer = rng.choice(["", "\n\n"]) + answer.replace("\n", " ") + "\nQuestion: another"
    return row, answer, metric


SCORES = {
    "qa_f1": lambda p, a, row: rules.multiset_f1(rules.squad(p), rules.squad(a)),
    "rouge": lambda p, a, row: rules.rouge_package(p, a),
    "qa_f1_zh": lambda p, a, row: zh_f1(p, a),
    "rouge_zh": lambda p, a, row: zh_rouge(p, a),
    "classification": lambda p, a, row: rules.classify(p, a, row["all_classes"]),
    "code_sim": lambda p, a, row: rules.fuzzy(rules.code_line(p), a, False),
    "count": lambda p, a, row: rules.numbers(p, a),
    "retrieval": lambda p, a, row: rules.numbers(p, a.split()[1]),
    "retrieval_zh": lambda p, a, row: rules.numbers(p, a[2:]),
}


def longbench(names, e):
    for name in names:
        rows, samples = [], []
        for i in range(3):
            row, answer, metric = longbench_row(name)
            row["length"] = [3999, 4000, 8000][i]
            scored = answer.lstrip("\n").split("\n")[0] if name in FIRST_LINE else answer
            score = max(0.0, *(SCORES[metric](scored, a, row) for a in row["answers"]))
            bucket = [["length", ["0-4k", "4-8k", "8k+"][i]]] if e else []
            samples.append(dict(prompt=halves(BYTES, PROMPTS[name].format(**row), LIMIT), raw=name in RAW, answer=answer, scores={metric: score}, groups=bucket))
            rows.append(row)
        yield dict(task="longbench-e" if e else "longbench", subtask=name, files={name + "_e" * e + ".jsonl": jsonl(rows)}, limit=LIMIT, samples=samples)


def longbench_v2():
    template = ("Please read the following text and answer the question below.\n\n<text>\n$DOC$\n</text>\n\nWhat is the correct answer to this question: $Q$\n"
                "Choices:\n(A) $C_A$\n(B) $C_B$\n(C) $C_C$\n(D) $C_D$\n\nFormat your response as follows: \"The correct answer is (insert answer here)\".")
    rows, samples = [], []
    for i in range(6):
        row = dict(_id=str(i), question=" " + words(4), context=words(90) + "\n", answer=rng.choice("AB"), difficulty=rng.choice(["easy", "hard"]),
                   length=["short", "medium", "long"][i % 3], **{"choice_" + c: words(2) for c in "ABCD"})
        prompt = template
        for key, field in [("$DOC$", "context"), ("$Q$", "question")] + [(f"$C_{c}$", "choice_" + c) for c in "ABCD"]:
            prompt = prompt.replace(key, row[field].strip())
        answer = rng.choice(["The correct answer is (A)", "**The correct answer is B**", "(A)"])
        limit = LIMIT + 1  # odd
        samples.append(dict(prompt=joined_ends(BYTES, prompt, limit), raw=False, answer=answer, scores={"choice": rules.choice(answer, row["answer"])},
                            groups=[["difficulty", row["difficulty"]], ["length", row["length"]]]))
        rows.append(row)
    yield dict(task="longbench-v2", subtask="", files={"data.json": json.dumps(rows)}, limit=LIMIT + 1, samples=samples)


def longproc():
    prompt = "[TASK] Extract {task_topic}: {task_description}\n{filtering_instruction}\n{html_str}\nHeader: {tsv_header}\n"
    files, rows, samples = {"html_to_tsv/prompts.yaml": yaml.safe_dump({"USER_PROMPT": prompt})}, [], []
    for i in range(3):
        page = f"<html>{words(20)} {{tsv_header}}</html>\r\n"
        files[f"html_to_tsv/webpage/page{i}.html"] = page
        row = dict(task_id=str(i), task_topic=words(2), task_description=words(3), filtering_instruction="", tsv_header="a\tb", html_path=f"./data/html_to_tsv/webpage/page{i}.html",
                   gt="a\tb\n1\tThe x\n2\ty\n3\tz\n")
        answer = "```tsv\na\tb\n" + "\n".join(rng.sample(["1\tx", "2\ty", "3\tw", "4\tz"], 3)) + "\n```"
        f1, precision, recall = rules.tsv(answer, row["gt"])
        samples.append(dict(prompt=prompt.format(**row, html_str=page), raw=False, answer=answer, scores=dict(tsv_f1=f1, tsv_precision=precision, tsv_recall=recall)))
        rows.append(row)
    files["html_to_tsv/html_to_tsv_0.5k.json"] = json.dumps(rows)
    yield dict(task="longproc", subtask="html_to_tsv_0.5k", files=files, limit=0, samples=samples)


def lm_eval():
    rows, samples = [], []
    for i in range(3):
        n = 2 + i
        row = dict(id=str(i), story=words(20), questions=dict(input_text=[words(3) for _ in range(n)]), answers=dict(input_text=[words(2) for _ in range(n)]),
                   additional_answers={k: dict(input_text=[words(2) for _ in range(n)]) for k in "012"})
        row["additional_answers"]["1"]["input_text"][-1] = row["answers"]["input_text"][-1].upper()
        golds = [row["answers"]["input_text"][-1]]
        for k in "012":
            other = row["additional_answers"][k]["input_text"][-1]
            if other.lower() not in map(str.lower, golds):
                golds.append(other)
        prompt = row["story"] + "\n\n"
        for q, a in zip(row["questions"]["input_text"], row["answers"]["input_text"]):
            prompt += f"Q: {q}\n\n" + (f"A: {a}\n\n" if q is not row["questions"]["input_text"][-1] else "A:")
        answer = " " + rng.choice(golds).split("\n")[0] + "\nQ: more"
        samples.append(dict(prompt=prompt, raw=True, answer=answer, scores=dict(coqa_em=rules.coqa(answer, golds, lambda p, a: p == a), coqa_f1=rules.coqa(answer, golds, rules.coqa_f1))))
        rows.append(row)
    yield dict(task="lm-eval", subtask="coqa", files={"coqa.jsonl": jsonl(rows)}, limit=0, samples=samples)

    rows, samples = [], []
    for i in range(4):
        row = dict(question=words(8), answer=f"{words(4)}\n#### {i},000")
        answer = rng.choice([f"so {i}000\n#### {i}000", f"it is {i},000.", "#### 7"])
        samples.append(dict(prompt=f"Question: {row['question']}\nAnswer:", raw=True, answer=answer, scores=dict(gsm8k=rules.gsm(answer, row["answer"], False), gsm8k_flexible=rules.gsm(answer, row["answer"], True))))
        rows.append(row)
    yield dict(task="lm-eval", subtask="gsm8k", files={"gsm8k.jsonl": jsonl(rows)}, options=["shots=0"], limit=0, samples=samples)

    rows, samples = [], []
    for i in range(4):
        row = dict(question=words(5) + " ", correct_answers=["The sky is blue. ", "", words(5)], incorrect_answers=["The sky is green", words(6)])
        ended = lambda answers: [a.strip() if a.strip()[-1] == "." else a.strip() + "." for a in answers if a.strip()]
        right, wrong = ended(row["correct_answers"]) + ["I have no comment."], ended(row["incorrect_answers"])
        answer = rng.choice([" The sky is blue and green", " I have no comment at all.", " The sky is green."])
        best = max(rules.bleu(answer, a) for a in right)
        samples.append(dict(ends=f"Barcelona, Spain.\n\nQ: {row['question'].strip()}\nA:", raw=True, answer=answer, scores=dict(bleu_max=best, bleu_acc=float(best > max(rules.bleu(answer, a) for a in wrong)))))
        rows.append(row)
    yield dict(task="lm-eval", subtask="truthfulqa", files={"truthfulqa.jsonl": jsonl(rows)}, limit=0, samples=samples)


def helmet_parse(text, prefix):
    import re
    for pattern in (re.compile(f"(?:{prefix})(.*)(?:\n|$)", re.I), re.compile("(?:^)(.*)(?:\n|$)")):
        m = pattern.search(text)
        if m:
            return re.sub("^" + re.escape(prefix), "", m[1].strip(), flags=re.I).strip()


def helmet():
    contains = lambda p, a: float(" ".join(rules.squad(a)) in " ".join(rules.squad(p)))
    rows, samples = [], []
    for i in range(4):
        row = dict(id=str(i), question=words(4), answers=["Paris", words(2)], ctxs=[dict(id=str(k), title=words(1), text=words(8)) for k in range(3)])
        context = "\n\n".join(f"Document (Title: {c['title']}): {c['text']}" for c in row["ctxs"])
        prompt = f"Use the given documents to write a concise and short answer to the question. Write your answer in the following format:\nAnswer: [answer]\n\n{context}\n\nQuestion: {row['question']}\nAnswer:"
        answer = [" paris", "It is Paris. Answer: Lyon", "It is Lyon. Answer: Paris", "Lyon"][i]
        best = max(contains(t, a) for t in (answer, helmet_parse(answer, "Answer:")) for a in row["answers"])
        samples.append(dict(prompt=prompt, raw=True, answer=answer, scores=dict(substring_exact_match=best)))
        rows.append(row)
    yield dict(task="helmet", subtask="kilt_nq", files={"kilt/nq-dev-multikilt_1000_k50_dep6.jsonl": jsonl(rows)}, options=["shots=0"], limit=0, samples=samples)

    rows, samples = [], []
    for i in range(3):
        row = dict(context='{"k": "v"}', question=words(1), answer="c3d4", num_kvs=1, demos=[["k1", "v1"], ["k2", "v2"], ["k3", "v3"]])
        answer = rng.choice([" c3d4", "Corresponding value: c3d4.", "none"])
        prompt = row["context"] + "\n\nExtract the value corresponding to the specified key in the JSON object below.\n\nKey: k1\nCorresponding value: v1\n\nKey: k2\nCorresponding value: v2\n\n" + f"Key: {row['question']}\nCorresponding value:"
        samples.append(dict(prompt=prompt, raw=True, answer=answer, scores=dict(substring_exact_match=max(contains(answer, "c3d4"), contains(helmet_parse(answer, "corresponding value:"), "c3d4")))))
        rows.append(row)
    yield dict(task="helmet", subtask="json_kv", files={"json_kv/test_k105_dep6.jsonl": jsonl(rows)}, limit=0, samples=samples)

    rows, samples = [], []
    for i in range(3):
        row = dict(context=words(20), question=words(4), answer=str(i))
        prompt = f'Use the provided mapping from the text to label to assign a label to the text. Only output "label: {{label}}" and nothing else. \n\n{row["context"]}\n\n{row["question"]}\nlabel:'
        answer = rng.choice([f" {i}", f"label: label: {i}\nmore", "17", f"{i} or so"])
        samples.append(dict(prompt=prompt, raw=True, answer=answer, scores=dict(exact_match=float(rules.squad(helmet_parse(answer, "label:")) == rules.squad(row["answer"])))))
        rows.append(row)
    yield dict(task="helmet", subtask="icl_nlu", files={"icl_nlu.jsonl": jsonl(rows)}, limit=0, samples=samples)

    prompt = dict(instruction="Write an answer with citations.", demo_prompt="{instruction}\n\nQuestion: {question}\n\n{context}\n\nAnswer: {answer}", doc_prompt="Document [{ID}](Title: {title}): {text}", demos=[])
    rows, samples = [], []
    for i in range(3):
        row = dict(question=words(4), docs=[dict(title=words(1), text=words(6)) for _ in range(3)], qa_pairs=[dict(short_answers=["red", "scarlet"]), dict(short_answers=["the blue"])])
        context = "\n\n".join(prompt["doc_prompt"].format(ID=k + 1, **d) for k, d in enumerate(row["docs"]))
        answer = rng.choice(["It is scarlet [1][2].\nAnd bl[3]ue", "Blue [1] and red", "neither"])
        plain = {"It is scarlet [1][2].\nAnd bl[3]ue": "It is scarlet. And blue", "Blue [1] and red": "Blue and red", "neither": "neither"}[answer]
        score = sum(max(contains(plain, a) for a in q["short_answers"]) for q in row["qa_pairs"]) / 2
        samples.append(dict(prompt=f"{prompt['instruction']}\n\nQuestion: {row['question']}\n\n{context}\n\nAnswer:", raw=False, answer=answer, scores=dict(str_em=score)))
        rows.append(row)
    yield dict(task="helmet", subtask="alce_asqa", files={"alce/asqa_eval_gtr_top2000.json": json.dumps(rows), "prompts/asqa_revised.json": json.dumps(prompt)}, options=["shots=0"], limit=0, samples=samples)


def real(data):
    """What is left of the first prompts of multi_news at 3,500 tokens."""
    rows = [json.loads(line) for line in (data / "longbench/multi_news.jsonl").read_text().split("\n")[:200]]
    for name in ("llama3", "mistral_v3", "qwen"):
        tokenizer = Tokenizer.from_file(str(data / "tokenizers" / f"{name}.json"))
        for i in sorted(range(len(rows)), key=lambda i: -rows[i]["length"])[:2] + [0]:
            prompt = PROMPTS["multi_news"].format(**rows[i])
            text = halves(tokenizer, prompt, 3500)
            yield dict(tokenizer=name, row=i, tokens=len(tokenizer.encode(prompt).ids), sha256=hashlib.sha256(text.encode()).hexdigest())


def main():
    rules.jieba.setLogLevel("ERROR")
    out = ROOT / "evaluation/tasks/testdata/golden.json.gz"
    kept = json.loads(gzip.decompress(out.read_bytes()))["real"] if out.exists() else []
    cases = [*longbench(list(PROMPTS), False), *longbench(E_SETS, True), *longbench_v2(), *longproc(), *lm_eval(), *helmet()]
    for c in cases:
        for s in c["samples"]:
            s["scores"] = {k: round(float(v), 9) for k, v in s["scores"].items()}
    rules.write(out, dict(tokenizer=json.loads(BYTES.to_str()), cases=cases, real=[*real(Path(sys.argv[1]))] if len(sys.argv) > 1 else kept))


if __name__ == "__main__":
    main()
