#!/usr/bin/env python3
"""Makes the expectations of model/chat: what Python's Jinja, set up as
transformers does, makes of the templates in a folder.

    pip install jinja2==3.1.6
    python3 lab/golden/chat_fixtures.py model/chat/testdata

Reads every *.jinja, writes cases.json and expected.json.
"""

import json
import sys
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOOL = {"type": "function", "function": {
    "name": "look_up", "description": "Finds \"things\" <b>&é</b>",
    "parameters": {"type": "object", "properties": {"zebra": {"type": "string"}, "ant": {"type": "integer", "enum": [1, 2]}}, "required": []}}}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "look_up", "arguments": {"zebra": "Größe", "ant": 1, "f": 1.5, "b": True, "z": None}}}


def case(name, messages, **context):
    return {"name": name, "ctx": {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, **context}}


def say(role, content, **keys):
    return {"role": role, "content": content, **keys}


CASES = [
    case("one", [say("user", "Hi")]),
    case("empty", [say("user", "")]),
    case("no_prompt", [say("user", "Hi"), say("assistant", "Hello!")], add_generation_prompt=False),
    case("system", [say("system", " Be  brief.\n"), say("user", " What's 2+2? <b>\"é\"</b> 你好 ")]),
    case("turns", [say("user", "a b"), say("assistant", "<think>\nx\n</think>\n\nb"), say("user", "c")]),
    case("no_thinking", [say("user", "a")], enable_thinking=False),
    case("tools", [say("user", "a"), say("assistant", "", tool_calls=[CALL]), say("tool", "{\"t\": 20}"), say("tool", "21"), say("user", "c")], tools=[TOOL]),
    case("parts", [say("user", [{"type": "text", "text": "look"}, {"type": "image"}])]),
    case("two_users", [say("user", "a"), say("user", "b")]),
    case("unknown_role", [say("wizard", "a")]),
]


class Generation(Extension):
    """{% generation %}, which prints its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    folder = Path(sys.argv[1])
    expected = {}
    for path in sorted(folder.glob("*.jinja")):
        template = environment().from_string(path.read_text())
        results = expected[path.name] = {}
        for c in CASES:
            try:
                results[c["name"]] = {"out": template.render(**c["ctx"])}
            except jinja2.exceptions.TemplateError as e:
                results[c["name"]] = {"err": str(e)}
    for name, value in [("cases.json", CASES), ("expected.json", expected)]:
        (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
