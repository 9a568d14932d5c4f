#!/usr/bin/env python3
"""Renders random conversations with chat templates, by transformers and by
model/chat/jinja, and compares byte for byte.

    pip install transformers jinja2
    python3 lab/golden/chat_differential.py [--conversations 400] [--seed 1] FOLDER...

Reads every *.jinja of the folders. Prints the renderings that differ and how many
agree; the exit code is 0 if all do. An exception that raise_exception made must
have the same message; any other is answered by an error.
"""

import argparse
import datetime
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import jinja2
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2025, 3, 9, 7, 5, 4)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = Clock

TEXTS = [
    "Hi", "", " ", "What's 2+2?", " leading and trailing \n", "a\nb\n\n  c", "<b>\"é\" & 你好 🙂</b>", "{{ not_a_template }} {% x %}",
    "<think>\nhm\n</think>\n\nanswer", "<think></think>x", "Größe: 1e5\ttab", "[INST] x [/INST]", "final</think>tail", "\u2028line\u00a0space ",
    "<|channel|>analysis<|message|>x", "<tool_response>\nold\n</tool_response>", "it's \\n \\\\ \"quoted\"", "/no_think", "/think now", "x" * 300,
]
WORDS = ["zebra", "ant", "city_name", "unit", "Größe", "n", "items", "keys", "type", "é"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def maybe(self, p=0.5):
        return self.r.random() < p

    def text(self):
        return self.r.choice(TEXTS)

    def scalar(self):
        return self.r.choice([0, 1, -7, 3.5, 1e16, 1e-7, 12345678901234567890, True, False, None, "", "x", "Größe", "it's", "a\nb", 1.0, -0.0])

    def value(self, depth=0):
        k = self.r.random()
        if depth > 2 or k < 0.6:
            return self.scalar()
        if k < 0.8:
            return [self.value(depth + 1) for _ in range(self.r.randrange(4))]
        return {self.r.choice(WORDS): self.value(depth + 1) for _ in range(self.r.randrange(4))}

    def schema(self, depth=0):
        kind = self.r.choice(["string", "integer", "number", "boolean", "array", "object", ["string", "null"], "null"])
        if depth > 2 and kind in ("array", "object"):
            kind = "string"
        s = {"type": kind}
        if self.maybe(0.1):
            s = {"anyOf": [{"type": "string"}, {"type": "integer"}]} if self.maybe() else {"oneOf": [{"type": "string", "description": "d"}, {"type": "object", "properties": {"a": {"type": "string"}}}]}
            kind = None
        if self.maybe():
            s["description"] = self.text()
        if kind == "string" and self.maybe(0.4):
            s["enum"] = [self.r.choice(["a", "b c", "it's", 1]) for _ in range(self.r.randrange(1, 4))]
        if self.maybe(0.2):
            s["default"] = self.value(1)
        if self.maybe(0.15):
            s["nullable"] = self.maybe()
        if kind == "array":
            s["items"] = self.schema(depth + 1)
        if kind == "object":
            s["properties"] = {w: self.schema(depth + 1) for w in self.r.sample(WORDS, self.r.randrange(4))}
            if self.maybe():
                s["required"] = self.r.sample(sorted(s["properties"]), self.r.randrange(len(s["properties"]) + 1))
            if self.maybe(0.2):
                s["additionalProperties"] = self.maybe()
        return s

    def tool(self):
        f = {"name": self.r.choice(["get_weather", "look_up", "python", "f1"]), "description": self.text() or "d"}
        p = self.schema(3) | {"type": "object", "properties": {w: self.schema(1) for w in self.r.sample(WORDS, self.r.randrange(4))}}
        p.pop("items", None)
        if self.maybe(0.7):
            p["required"] = self.r.sample(sorted(p["properties"]), self.r.randrange(len(p["properties"]) + 1))
        if self.maybe(0.9):
            f["parameters"] = p
        if self.maybe(0.1):
            f["return"] = {"type": "string"}
        if self.maybe(0.05):
            f["strict"] = True
        return {"type": "function", "function": f} if self.maybe(0.9) else f

    def call(self):
        arguments = {self.r.choice(WORDS): self.value(1) for _ in range(self.r.randrange(4))}
        if self.maybe(0.15):
            arguments = json.dumps(arguments)
        f = {"name": self.r.choice(["get_weather", "look_up", "python"]), "arguments": arguments}
        c = {"type": "function", "function": f}
        if self.maybe(0.1):
            return f
        if self.maybe(0.7):
            c["id"] = self.r.choice(["abcdefghi", "call_1", "functions.look_up:0"])
        return c

    def content(self, role):
        k = self.r.random()
        if k < 0.75:
            return self.text()
        if k < 0.8:
            return None
        parts = []
        for _ in range(self.r.randrange(1, 4)):
            kind = self.r.choice(["text", "text", "text", "image", "image_url", "video", "audio"] if role == "user" else ["text"])
            parts.append({"type": "text", "text": self.text()} if kind == "text" else {"type": kind, kind: "x"})
        return parts

    def message(self, role):
        m = {"role": role}
        if self.maybe(0.98):
            m["content"] = self.content(role) if self.maybe(0.8) else self.text()
        if role == "assistant":
            if self.maybe(0.25):
                m["tool_calls"] = [self.call() for _ in range(self.r.randrange(1, 3))]
                if self.maybe(0.5):
                    m["content"] = self.r.choice(["", None, "calling"])
            if self.maybe(0.2):
                m[self.r.choice(["reasoning_content", "thinking", "reasoning"])] = self.text()
            if self.maybe(0.03):
                m["tool_calls"] = None
        if role == "tool":
            if self.maybe(0.7):
                m["tool_call_id"] = self.r.choice(["abcdefghi", "call_1"])
            if self.maybe():
                m["name"] = "look_up"
            if self.maybe(0.2):
                m["content"] = json.dumps(self.value())
        if self.maybe(0.03):
            m["name"] = "bob"
        if self.maybe(0.02):
            m[self.r.choice(["items", "prefix", "citations", "weight"])] = self.value()
        return m

    def messages(self):
        out = []
        if self.maybe(0.5):
            out.append(self.message(self.r.choice(["system", "system", "system", "developer"])))
        if self.maybe(0.08):  # in any order
            return out + [self.message(self.r.choice(["user", "assistant", "tool", "system", "ipython", "function", "wizard"])) for _ in range(self.r.randrange(5))]
        for _ in range(self.r.randrange(1, 4)):
            out.append(self.message("user"))
            if self.maybe(0.1):
                return out
            a = self.message("assistant")
            out.append(a)
            while a.get("tool_calls"):
                out += [self.message("tool") for _ in a["tool_calls"]]
                a = self.message("assistant")
                out.append(a)
        if self.maybe(0.7):
            out.append(self.message("user"))
        return out

    def variables(self):
        v = {"messages": self.messages(), "tools": None, "documents": None, "add_generation_prompt": self.maybe(0.7)}
        if self.maybe(0.9):
            v["bos_token"] = "<s>"
        if self.maybe(0.9):
            v["eos_token"] = "</s>"
        if self.maybe(0.4):
            v["tools"] = [self.tool() for _ in range(self.r.randrange(0, 3))]
        if self.maybe(0.05):
            v["documents"] = [{"title": self.text(), "text": self.text()} for _ in range(self.r.randrange(3))]
        for name, choices in {
            "enable_thinking": [True, False], "thinking": [True, False], "reasoning_effort": ["low", "high", "none"], "date_string": ["1 Jan 2025"],
            "tools_in_user_message": [True, False], "builtin_tools": [["browser", "python"], []], "preserve_thinking": [True, False],
            "model_identity": ["You are x."], "xml_tools": [[]], "python_tools": [[]], "controls": [{"length": "long"}], "keep_past_thinking": [True],
            "thinking_budget": [512, 0, -1], "citation_mode": ["accurate"], "available_tools": [[]], "pad_token": ["<pad>"], "custom_tools": [[]],
        }.items():
            if self.maybe(0.12):
                v[name] = self.r.choice(choices)
        return v


def reference(template, variables):
    try:
        return {"text": template.render(**variables)}
    except jinja2.exceptions.TemplateError as e:
        return {"error": str(e), "raised": type(e) is jinja2.exceptions.TemplateError}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


def agree(a, b):
    if "error" in a or "error" in b:
        return "error" in a and "error" in b and a.get("raised", False) == b.get("raised", False) and (not a.get("raised") or a["error"] == b["error"])
    return a["text"] == b["text"]


class Peer:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        program = Path(self.folder.name) / "peer"
        subprocess.run(["go", "build", "-o", program, "./golden/jinjapeer"], check=True, cwd=Path(__file__).resolve().parents[1])
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, source, variables):
        self.process.stdin.write(json.dumps({"source": source, "variables": variables, "now": NOW.isoformat() + "Z"}, ensure_ascii=False) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folders", nargs="+", type=Path)
    p.add_argument("--conversations", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=20, help="differences that are printed")
    o = p.parse_args()
    cases = [Maker(o.seed * 1_000_003 + i).variables() for i in range(o.conversations)]
    peer = Peer()
    total = same = texts = shown = templates = 0
    for path in sorted(f for folder in o.folders for f in folder.glob("*.jinja")):
        source = path.read_text()
        try:
            template = chat_template_utils._compile_jinja_template(source)
        except jinja2.exceptions.TemplateError as e:
            template = None
            print(f"{path.name}: transformers does not parse it: {e}")
        templates += 1
        differ = 0
        for i, variables in enumerate(cases):
            want = reference(template, variables) if template else {"error": "parse"}
            got = peer.ask(source if i == 0 else "", variables)
            if "error" in got:
                got.pop("text", None)
            total += 1
            texts += "text" in want
            if agree(want, got):
                same += 1
                continue
            differ += 1
            if differ == 1 and shown < o.show:
                shown += 1
                print(f"--- {path.name}, conversation {i}\n want {json.dumps(want, ensure_ascii=False)[:1500]}\n got  {json.dumps(got, ensure_ascii=False)[:1500]}")
        if differ:
            print(f"{path.name}: {differ} of {len(cases)} differ")
    peer.close()
    print(f"{same} of {total} renderings agree ({templates} templates, {len(cases)} conversations; {texts} are texts, {total - texts} errors)")
    sys.exit(0 if same == total else 1)


if __name__ == "__main__":
    main()
