#!/usr/bin/env python3
"""Asks two builds of "evict serve" the same and compares what they answer, for changes that are to change nothing.

    lab/equal_server.py OLD NEW MODEL   # folders with evict, and a model whose chat template writes calls of tools

Requests of every endpoint at temperature 0, streamed and whole, with tools, constraints, contexts and errors. Ids and times are
masked. How an answer is cut into the events of a stream depends on the time, so events of one kind are joined. Answers that
differ are shown, and the status is 1.
"""
import difflib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

NAME = "m"
TIMES = {"created", "created_at", "expires_at", "prefill_ms", "tokens_per_s", "sequence_number"}
TEXTS = {"content", "text", "delta", "arguments", "partial_json", "thinking", "reasoning_content", "logprobs", "tokens_done"}
HEADERS = ("Content-Type", "X-Glimpse-Ignored", "Allow", "WWW-Authenticate")
IDS = re.compile(r"\b(chatcmpl-|cmpl-|resp_|msg_|rs_|fc_|ctc_|call_|toolu_|req-)[A-Z2-7]{20,}")

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": CITY}}
TOOLS = [TOOL, {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]
STORY = " ".join(f"In year {n} the keeper of the lighthouse wrote {n * 7 % 31} letters and saw {n * 5 % 17} ships." for n in range(24))
ASK = [{"role": "user", "content": "What is the weather in Oslo for two days?"}]
CALLED = ASK + [{"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\", \"days\": 2}"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "snow"}]


def chat(messages=None, **more):
    return ("POST", "/v1/chat/completions", {"messages": messages or [{"role": "user", "content": "Name three colours."}], "max_tokens": 10, "temperature": 0, **more})


def complete(prompt="Once upon a time", **more):
    return ("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 8, "temperature": 0, **more})


def respond(given="Name three colours.", **more):
    return ("POST", "/v1/responses", {"input": given, "max_output_tokens": 10, "temperature": 0, **more})


def message(messages=None, path="", **more):
    return ("POST", "/v1/messages" + path, {"messages": messages or [{"role": "user", "content": "Name three colours."}], "max_tokens": 10, "temperature": 0, **more})


def schema(s):
    return {"type": "json_schema", "json_schema": {"name": "city", "schema": s}}


def requests():
    marked = [{"type": "text", "text": STORY, "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "How many ships in year 3?"}]
    flat = {"type": "function", "name": "weather", "parameters": CITY}
    anthropic = {"name": "weather", "description": "The weather of a city.", "input_schema": CITY}
    used = [{"role": "user", "content": "Weather in Oslo?"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo", "days": 2}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "snow"}]}]
    yield from (("GET", path, None) for path in (
        "/health", "/v1/models", "/v1/models/" + NAME, "/v1/models/none", "/tokenizer_info", "/v1/adapters", "/v1/contexts", "/nowhere", "/v1/completions", "/", "/metrics"))
    yield "POST", "/tokenize", {"prompt": "Grüße, world!"}
    yield "POST", "/tokenize", {"messages": ASK, "tools": TOOLS}
    yield "POST", "/detokenize", {"tokens": [100, 200, 300]}
    yield "POST", "/apply-template", {"messages": CALLED, "tools": TOOLS}
    yield "POST", "/v1/embeddings", {"input": "x"}

    yield complete()
    yield complete(stream=True, stream_options={"include_usage": True})
    yield complete(["One, two,", "Red, green,"], n=2, logprobs=2, echo=True)
    yield complete([100, 200, 300, 400], max_tokens=0, echo=True, logprobs=1)
    yield complete("The answer is ", structured_outputs={"regex": "[0-9]{2}-[a-c]+"})
    yield complete("The colour is", structured_outputs={"choice": ["red", "green"]}, stream=True)
    yield complete("Say", grammar='root ::= "yes" | "no" " way"')
    yield complete("Say", guided_json=CITY, max_tokens=30)
    yield complete(stop=[" a", "the"], logit_bias={"100": -50}, min_tokens=2, presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.1)
    yield complete("a", suffix="b")
    yield complete("", max_tokens=3)
    yield complete(n=0)

    yield chat()
    yield chat(stream=True)
    yield chat(logprobs=True, top_logprobs=2, n=2)
    yield chat(logprobs=True, stream=True, stream_options={"include_usage": True})
    yield chat(response_format=schema(CITY), max_tokens=40)
    yield chat(response_format={"type": "json_object"}, max_tokens=20, stream=True)
    yield chat(ASK, tools=TOOLS, max_tokens=40)
    yield chat(ASK, tools=TOOLS, max_tokens=40, tool_choice="required", stream=True)
    yield chat(ASK, tools=TOOLS, max_tokens=40, tool_choice={"type": "function", "function": {"name": "weather"}})
    yield chat(ASK, tools=TOOLS, max_tokens=40, tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "clock"}}]}}, parallel_tool_calls=False)
    yield chat(CALLED, tools=TOOLS)
    yield chat([{"role": "system", "content": "Be short."}, {"role": "user", "content": marked}], eviction={"policy": "streamingllm", "budget": "64", "kept": True})
    yield chat([{"role": "user", "content": STORY + " How many ships in year 5?"}], model=NAME + "@snapkv:25%")
    yield chat([{"role": "user", "content": STORY + " How many letters in year 5?"}], eviction={"policy": "h2o", "budget": "10%"}, stream=True)
    yield chat([{"role": "user", "content": "Count: one, two,"}, {"role": "assistant", "content": "three, four,"}])
    yield chat(user="someone", unknown_field=1, metadata={"a": "b"})
    yield chat(temperature=3)
    yield chat(eviction={"polcy": "x"})
    yield chat(eviction={"policy": "none-such"})
    yield chat(response_format={"type": "xml"})
    yield chat(tool_choice="required")
    yield chat([{"role": "user"}])
    yield "POST", "/v1/chat/completions", '{"messages": [], "messages": []}'
    yield "POST", "/v1/chat/completions", "no JSON"

    yield respond()
    yield respond(stream=True, instructions="Be short.")
    yield respond(ASK, tools=[flat], tool_choice="required", max_output_tokens=40, stream=True)
    yield respond([*ASK, {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c1", "output": "snow"}], tools=[flat])
    yield respond(text={"format": {"type": "json_schema", "name": "city", "schema": CITY}}, max_output_tokens=40, include=["message.output_text.logprobs"], top_logprobs=1)
    yield respond(tools=[{"type": "custom", "name": "shell", "format": {"type": "grammar", "syntax": "lark", "definition": "start: A"}}], tool_choice={"type": "custom", "name": "shell"}, max_output_tokens=40, stream=True)
    yield respond(previous_response_id="resp_1")
    yield respond([{"role": "user", "content": STORY}, {"role": "assistant", "content": "I see."}, {"role": "user", "content": "Name one."}], truncation="auto")

    yield message()
    yield message(stream=True, system="Be short.", stop_sequences=[","])
    yield message(ASK, tools=[anthropic], tool_choice={"type": "any"}, max_tokens=40)
    yield message(ASK, tools=[anthropic], tool_choice={"type": "tool", "name": "weather"}, max_tokens=40, stream=True)
    yield message(used, tools=[anthropic])
    yield message([{"role": "user", "content": marked}], eviction={"policy": "streamingllm", "budget": "64"}, stream=True)
    yield message(path="/count_tokens", system="Be short.")
    yield message(max_tokens=None)
    yield message([{"role": "nobody", "content": "x"}])

    yield "POST", "/v1/contexts", {"name": "story", "text": STORY, "eviction": {"policy": "streamingllm", "budget": "64", "kept": True}}
    yield "GET", "/v1/contexts/story", None
    yield chat([{"role": "user", "content": "How many ships in year 7?"}], eviction={"context": "story"})
    yield chat([{"role": "user", "content": "How many letters in year 8?"}], eviction={"context": "story"}, stream=True)
    yield "POST", "/v1/contexts", {"messages": [{"role": "user", "content": STORY[:600]}], "eviction": {"policy": "streamingllm", "budget": "32"}, "stream": True}
    yield "DELETE", "/v1/contexts/story", None
    yield chat(eviction={"context": "story"})
    yield "POST", "/v1/adapters", {"from": "/nowhere"}
    yield "DELETE", "/v1/adapters/none", None


def mask(x, key=""):
    if key in TIMES:
        return None
    if isinstance(x, dict):
        return {k: mask(v, k) for k, v in x.items()}
    if isinstance(x, list):
        return [mask(v) for v in x]
    return IDS.sub(r"\1ID", x) if isinstance(x, str) else x


def kind(x, key=""):
    """An event without what grows: events of one kind are parts of one text."""
    if isinstance(x, dict):
        return {k: kind(v, k) for k, v in x.items()}
    if isinstance(x, list) and key not in TEXTS:
        return [kind(v) for v in x]
    return None if key in TEXTS else x


def join(a, b, key=""):
    if isinstance(a, dict):
        return {k: join(a[k], b[k], k) for k in a}
    if isinstance(a, list) and key not in TEXTS:
        return [join(v, w) for v, w in zip(a, b)]
    if key in TEXTS and a is not None and b is not None and not isinstance(a, (int, bool)):
        return a + b
    return b


def events(body):
    out = []
    for block in body.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        data = lines.get("data", "")
        if not data.startswith("{"):
            out.append([lines.get("event"), data])
            continue
        event = mask(json.loads(data))
        if out and isinstance(out[-1][1], dict) and out[-1][0] == lines.get("event") and kind(out[-1][1]) == kind(event):
            out[-1][1] = join(out[-1][1], event)
        else:
            out.append([lines.get("event"), event])
    return out


def ask(base, method, path, body):
    data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=600)
    except urllib.error.HTTPError as e:
        answer = e
    text = answer.read().decode()
    out = {"status": answer.status, "headers": {h: answer.headers[h] for h in HEADERS if answer.headers[h]}}
    if path == "/metrics":
        out["body"] = sorted({line for line in text.split("\n") if line.startswith("# HELP glimpse_")})
    elif "event-stream" in (answer.headers["Content-Type"] or ""):
        out["events"] = events(text)
    else:
        out["body"] = mask(json.loads(text)) if text.startswith(("{", "[")) else text
    return out


def answers(program, model, work):
    log = open(work / (program.parent.name + ".log"), "w+")
    server = subprocess.Popen([program, "serve", "--model", model, "--served-model-name", NAME, "--listen", "127.0.0.1:0", "--memory", "1GiB"], stderr=log)
    try:
        base = None
        while base is None:
            if server.poll() is not None:
                sys.exit(f"equal_server: {program}: the server has ended:\n" + pathlib.Path(log.name).read_text())
            found = re.search(r"msg=serving .*\burl=(\S+)", pathlib.Path(log.name).read_text())
            base = found and found[1]
            time.sleep(0.2)
        return [(f"{method} {path} {json.dumps(body)[:150]}", ask(base.rstrip("/"), method, path, body)) for method, path, body in requests()]
    finally:
        server.terminate()
        server.wait()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    old, new, model = sys.argv[1:]
    differ = 0
    with tempfile.TemporaryDirectory() as work:
        both = [answers(pathlib.Path(folder).resolve() / "evict", model, pathlib.Path(work)) for folder in (old, new)]
    for (name, was), (_, is_) in zip(*both):
        if was != is_:
            differ += 1
            print(f"differs  {name}")
            lines = [json.dumps(x, indent=1, sort_keys=True, ensure_ascii=False).split("\n") for x in (was, is_)]
            print("\n".join(list(difflib.unified_diff(*lines, "old", "new", lineterm="", n=1))[:40]))
    statuses = {}
    for _, was in both[0]:
        statuses[was["status"]] = statuses.get(was["status"], 0) + 1
    print(f"{'differs' if differ else 'equal'}    server: {len(both[0]) - differ} of {len(both[0])} answers, by status {dict(sorted(statuses.items()))}")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
