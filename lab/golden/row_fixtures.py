#!/usr/bin/env python3
"""Makes the expectations of rows with chats: what transformers' chat templates make
of the conversations that the rows mean. Arguments of calls that are JSON text are objects there, as vLLM renders them,
and content that is null or absent is empty; where the template then shows no call, it is what it makes of text and null.

    pip install transformers==4.57.6 jinja2==3.1.6
    python3 lab/golden/row_fixtures.py model/chat/testdata/rows [FOLDER]

Reads every *.jinja of both folders, the second one with templates of public models.
Writes rows.jsonl and expected.json into the first: for every template and row the
text, the message of raise_exception, or "fails" for any other error of Python.
"""

import datetime
import json
import sys
from pathlib import Path

import jinja2
from transformers.utils import chat_template_utils


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 9, 7, 5, 4)


chat_template_utils.datetime = Clock

TOOL = {"type": "function", "function": {"name": "weather", "description": "of a \"city\"", "parameters": {
    "type": "object", "properties": {"unit": {"type": "string"}, "city": {"type": "string"}}, "required": ["city"]}}}
ASK = {"role": "user", "content": "Weather in Paris?"}
SO = {"role": "user", "content": "So?"}
SUNNY = {"role": "tool", "content": "sunny", "name": "weather", "tool_call_id": "abcdefghi"}
BRIEF = {"role": "system", "content": "Be brief."}


def call(arguments, **keys):
    return {"role": "assistant", **keys, "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": arguments}}]}


def say(role, content, **keys):
    return {"role": role, "content": content, **keys}


def bare_call(arguments):
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": arguments}}]}


CITY = {"zone": None, "city": "Zürich", "days": [1, 2.5]}
TOLD = say("assistant", "Sunny.")

# A row, and what it means where that is not its messages and tools as they are.
CASES = [
    ({"messages": [ASK]},),
    ({"messages": [BRIEF, ASK, TOLD, SO]},),
    ({"messages": [ASK, call(CITY, content=""), SUNNY, SO]},),
    ({"messages": [ASK, call(CITY, content=None), SUNNY]},),
    ({"messages": [ASK, call(CITY), SUNNY]},),
    ({"messages": [ASK, call('{"city": "Paris"}', content=""), SUNNY]},),
    ({"messages": [ASK, say("assistant", "Sunny.", reasoning_content="It is summer.\n"), SO]},),
    ({"messages": [ASK, call(CITY, content="", reasoning_content="I ask."), SUNNY]},),
    ({"messages": [say("user", "Hi", name="Alice")]},),
    ({"messages": [ASK], "tools": [TOOL]},),
    ({"messages": [ASK], "tools": json.dumps([TOOL, TOOL])}, [ASK], [TOOL, TOOL]),
    ({"messages": [ASK], "tools": []},),
    ({"messages": [ASK], "tools": None},),
    ({"messages": [BRIEF, ASK, call(CITY, content=""), SUNNY, TOLD, SO], "tools": [TOOL]},),
    ({"messages": [say("user", [{"type": "text", "text": " What is"}, {"type": "text", "text": " this?"}])]},),
    ({"messages": [say("system", [{"type": "text", "text": "Be brief."}]), ASK]},),
    ({"messages": [say("developer", "Be brief."), ASK]},),
    ({"messages": [ASK, SO]},),
    ({"messages": [ASK, TOLD]}, [ASK]),
    ({"messages": [{**ASK, "name": None, "tool_calls": None}], "tools": None}, [ASK]),
    ({"messages": json.dumps([BRIEF, ASK])}, [BRIEF, ASK]),
    ({"system": "Be brief.", "messages": [ASK]}, [BRIEF, ASK]),
    ({"system": "", "system_prompt": "Be brief.", "prompt": "So?"}, [BRIEF, SO]),
    ({"system": "Be long.", "messages": [BRIEF, ASK]}, [BRIEF, ASK]),
    ({"prompt": "Weather in Paris?", "tools": [TOOL]}, [ASK], [TOOL]),
    ({"system": "Be brief.", "tools": "[]", "conversations": [{"from": "human", "value": "Weather in Paris?"}, {"from": "function_call", "value": json.dumps({"name": "weather", "arguments": CITY})}, {"from": "observation", "value": "sunny"}]},
     [BRIEF, ASK, bare_call(CITY), say("tool", "sunny")], []),
    ({"conversations": [{"from": "System", "value": "Be brief."}, {"from": "Human", "value": "Weather in Paris?"}, {"from": "GPT", "value": "Sunny."}, {"from": "USER", "value": "So?"}]}, [BRIEF, ASK, TOLD, SO]),
    ({"conversations": [{"from": "human", "value": "Weather in Paris?"}, {"from": "function_call", "value": "weather!"}, {"from": "tool", "value": "sunny"}]}, [ASK, say("assistant", "weather!"), say("tool", "sunny")]),
    ({"conversations": [BRIEF, ASK]}, [BRIEF, ASK]),
    ({"conversation": [{"human": "Weather in Paris?", "assistant": "Sunny."}, {"human": "So?", "assistant": "Go."}]}, [ASK, TOLD, SO]),
    ({"prompt": [BRIEF, ASK], "completion": [TOLD]}, [BRIEF, ASK]),
    ({"prompt": [ASK, TOLD, SO], "completion": "Go out.", "tools": [TOOL]}, [ASK, TOLD, SO], [TOOL]),
    ({"prompt": "Weather in Paris?", "completion": "Sunny."}, [ASK]),
    ({"prompt": "Weather in Paris?", "prompt_id": "x", "messages": [ASK, TOLD, SO, TOLD]}, [ASK, TOLD, SO]),
]


def shown(messages, text):
    """Messages with the arguments of calls as objects, or else as text, and content that is no text as "" or null."""
    out = []
    for m in messages:
        if m.get("tool_calls"):
            calls = []
            for c in m["tool_calls"]:
                arguments = c["function"]["arguments"]
                if isinstance(arguments, str):
                    arguments = json.loads(arguments)
                calls.append({**c, "function": {**c["function"], "arguments": json.dumps(arguments, ensure_ascii=False) if text else arguments}})
            m = {"role": m["role"], "content": (None if text else "") if m.get("content") is None else m["content"], **{k: v for k, v in m.items() if k not in ("role", "content")}, "tool_calls": calls}
        out.append(m)
    return out


def render(template, messages, tools):
    out = render_as(template, shown(messages, False), tools)
    if any(m.get("tool_calls") for m in messages) and '"weather"' not in (shows := out.get("out", "")) and "weather" not in shows.replace("Weather", ""):
        other = render_as(template, shown(messages, True), tools)
        if "weather" in other.get("out", "").replace("Weather", ""):
            return other
    return out


def render_as(template, messages, tools):
    try:
        (text,), _ = chat_template_utils.render_jinja_template(
            conversations=[messages], tools=tools, chat_template=template, add_generation_prompt=True, bos_token="<|bos|>", eos_token="<|end|>")
        return {"out": text}
    except jinja2.exceptions.TemplateError as e:
        if type(e) is jinja2.exceptions.TemplateError:  # of raise_exception
            return {"err": str(e)}
        return {"fails": str(e)}
    except TypeError as e:
        return {"fails": str(e)}


def main():
    folder = Path(sys.argv[1])
    expected = {}
    for path in sorted(p for f in sys.argv[1:] for p in Path(f).glob("*.jinja")):
        template = path.read_text()
        expected[path.name] = results = []
        for row, *means in CASES:
            messages, tools = means + [None] * (2 - len(means)) if means else (row["messages"], row.get("tools"))
            results.append(render(template, messages, tools))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row, *_ in CASES))
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=0) + "\n")
    print(f"{len(CASES)} rows, {len(expected)} templates")


if __name__ == "__main__":
    main()
