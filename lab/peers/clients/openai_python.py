#!/usr/bin/env python3
"""Asks a running `evict serve` by OpenAI's own client whatever clients ask for, one line a case.

    pip install openai jsonschema
    bin/evict serve --listen 127.0.0.1:8080 &
    lab/peers/clients/openai_python.py --base-url http://127.0.0.1:8080/v1 --model glimpse-reference --prompt "the key"

--key is one of the server's keys, without which wrong keys are not tried. --overload N sends N
requests at once, more than the server has rows and places to wait; without it, 429 is not tried.
"""
import argparse
import json
import sys
import threading
import time
import traceback
import urllib.request

import jsonschema
import openai

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                   "required": ["city", "days"], "additionalProperties": False}}}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
          "required": ["name", "age"], "additionalProperties": False}


class Skipped(Exception):
    """A case that this server or these arguments leave out, with the reason."""


class Cases:
    def __init__(self, args):
        self.args = args
        self.model = args.model
        self.messages = [{"role": "user", "content": args.prompt}]
        self.client = openai.OpenAI(base_url=args.base_url, api_key=args.key or "none", max_retries=0, timeout=args.timeout)

    def chat(self, **more):
        return self.client.chat.completions.create(**{"model": self.model, "messages": self.messages, "max_tokens": 16, "temperature": 0} | more)

    def get(self, path, body=None):
        """What the server answers beside /v1, as text."""
        request = urllib.request.Request(self.args.base_url.rstrip("/").removesuffix("/v1") + path, json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json", "Authorization": f"Bearer {self.args.key or 'none'}"})
        with urllib.request.urlopen(request, timeout=self.args.timeout) as answer:
            return answer.read().decode()

    def streamed(self, **more):
        """The chunks of a stream, its text and its finish_reason, which is there once."""
        chunks = list(self.chat(stream=True, **more))
        choices = [c.choices[0] for c in chunks if c.choices]
        assert len({c.id for c in chunks}) == 1, "more than one id"
        assert choices[0].delta.role == "assistant", f"first delta {choices[0].delta}"
        reasons = [c.finish_reason for c in choices if c.finish_reason]
        assert len(reasons) == 1 and choices[-1].finish_reason, f"finish reasons {reasons}"
        return chunks, "".join(c.delta.content or "" for c in choices), reasons[0]

    def refused(self, kind, param=None, **more):
        try:
            self.chat(**more)
        except kind as e:
            body = e.body if isinstance(e.body, dict) else {}
            assert body.get("message"), f"no message in {e.body}"
            assert param is None or body.get("param") == param, f"param {body.get('param')}, want {param}: {body['message']}"
            return
        raise AssertionError(f"{more}: no {kind.__name__}")

    def case_models(self):
        names = [m.id for m in self.client.models.list()]
        assert self.model in names, f"{self.model} is not in {names}"
        assert self.client.models.retrieve(self.model).id == self.model

    def case_chat(self):
        r = self.chat()
        c = r.choices[0]
        assert r.object == "chat.completion" and c.message.role == "assistant" and c.finish_reason in ("stop", "length")
        assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens and r.usage.prompt_tokens > 0
        assert r.usage.completion_tokens <= 16

    def case_stream_equals_plain(self):
        plain = self.chat(max_tokens=32).choices[0]
        _, text, reason = self.streamed(max_tokens=32)
        assert (text, reason) == (plain.message.content, plain.finish_reason), f"streamed {text!r} {reason}, plain {plain.message.content!r} {plain.finish_reason}"

    def case_usage_chunk(self):
        chunks, _, _ = self.streamed(stream_options={"include_usage": True})
        assert not chunks[-1].choices and chunks[-1].usage.completion_tokens > 0, f"last chunk {chunks[-1]}"
        assert all(c.usage is None for c in chunks[:-1]), "usage before the last chunk"
        assert chunks[-1].usage.model_dump()["total_tokens"] == self.chat().usage.total_tokens

    def case_stop(self):
        whole = self.chat(max_tokens=32).choices[0].message.content
        if len(whole) < 4:
            raise Skipped(f"the answer {whole!r} is too short")
        at = len(whole) // 2
        stop = whole[at:at + 3]
        want = whole[:whole.index(stop)]
        r = self.chat(max_tokens=32, stop=[stop]).choices[0]
        assert (r.message.content, r.finish_reason) == (want, "stop"), f"got {r.message.content!r} {r.finish_reason}, want {want!r}"
        assert self.streamed(max_tokens=32, stop=stop)[1:] == (want, "stop")

    def case_seed(self):
        one, two = (self.chat(temperature=1, seed=7).choices[0].message.content for _ in range(2))
        assert one == two, f"{one!r} and {two!r}"

    def case_choices(self):
        r = self.chat(n=2, temperature=1, seed=7)
        assert [c.index for c in r.choices] == [0, 1]

    def case_logprobs(self):
        self.refused(openai.BadRequestError, "top_logprobs", logprobs=True, top_logprobs=21)
        content = self.chat(logprobs=True, top_logprobs=5).choices[0].logprobs.content
        for t in content:
            assert len(t.top_logprobs) == 5 and t.top_logprobs == sorted(t.top_logprobs, key=lambda x: -x.logprob)
            assert abs(t.logprob - t.top_logprobs[0].logprob) < 1e-4, "the greedy token is not the likeliest"
        content = self.chat(logprobs=True).choices[0].logprobs.content
        assert content and all(t.logprob <= 0 and t.top_logprobs == [] for t in content), f"without top_logprobs, {content[:1]}, want an empty list"

    def tools(self, **more):
        try:
            return self.chat(tools=[TOOL], **more)
        except openai.BadRequestError as e:
            if "template" in str(e):  # the model is told of no tools
                raise Skipped(e.body["message"]) from e
            raise

    def case_tools(self):
        c = self.tools(max_tokens=64).choices[0]
        if c.message.tool_calls:
            assert c.finish_reason in ("tool_calls", "length") and c.message.tool_calls[0].function.name
        else:
            assert c.message.content is not None and c.finish_reason in ("stop", "length")

    def case_tools_required(self):
        for choice in "required", {"type": "function", "function": {"name": "get_weather"}}:
            c = self.tools(tool_choice=choice, parallel_tool_calls=False, max_tokens=200).choices[0]
            assert c.finish_reason in ("tool_calls", "stop"), c.finish_reason
            assert len(c.message.tool_calls) == 1, f"{len(c.message.tool_calls)} calls where one is asked for"
            call = c.message.tool_calls[0]
            assert call.id and call.type == "function" and call.function.name == "get_weather", call
            jsonschema.validate(json.loads(call.function.arguments), TOOL["function"]["parameters"])

    def case_tools_streamed(self):
        plain = self.tools(tool_choice="required", max_tokens=200).choices[0].message.tool_calls
        calls = {}
        for chunk in self.tools(tool_choice="required", max_tokens=200, stream=True):
            for part in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
                if part.id:
                    assert part.index not in calls and part.function.name
                    calls[part.index] = [part.function.name, ""]
                calls[part.index][1] += part.function.arguments or ""
        assert [calls[i] for i in sorted(calls)] == [[c.function.name, c.function.arguments] for c in plain], f"{calls} and {plain}"

    def case_tools_unknown(self):
        self.tools(max_tokens=1)
        self.refused(openai.BadRequestError, "tool_choice", tools=[TOOL], tool_choice={"type": "function", "function": {"name": "fly"}})

    def case_json_schema(self):
        r = self.chat(max_tokens=200, response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}})
        assert r.choices[0].finish_reason == "stop", f"{r.choices[0]}"
        jsonschema.validate(json.loads(r.choices[0].message.content), SCHEMA)

    def case_completions(self):
        complete = lambda prompt, **more: self.client.completions.create(**{"model": self.model, "prompt": prompt, "max_tokens": 8, "temperature": 0} | more)
        one = complete(self.args.prompt).choices
        both = complete([self.args.prompt, 2 * (self.args.prompt + " ")]).choices
        assert len(one) == 1 and [c.index for c in both] == [0, 1]
        assert both[0].text == one[0].text, "a prompt's answer depends on the one beside it"
        ids = json.loads(self.get("/tokenize", {"model": self.model, "prompt": self.args.prompt}))["tokens"]
        assert complete(ids).choices[0].text == one[0].text, "token ids give another answer than their text"
        assert "".join(c.choices[0].text for c in complete(self.args.prompt, stream=True)) == one[0].text

    def case_responses(self):
        r = self.client.responses.create(model=self.model, input=self.args.prompt, max_output_tokens=16, temperature=0)
        assert r.output_text == self.chat().choices[0].message.content, f"{r.output_text!r}"
        assert r.status in ("completed", "incomplete") and r.usage.output_tokens <= 16
        text = "".join(e.delta for e in self.client.responses.create(model=self.model, input=self.args.prompt, max_output_tokens=16, temperature=0, stream=True)
                       if e.type == "response.output_text.delta")
        assert text == r.output_text

    def case_wrong_key(self):
        if not self.args.key:
            raise Skipped("no --key")
        try:
            self.client.with_options(api_key="wrong").models.list()
        except openai.AuthenticationError:
            return
        raise AssertionError("a wrong key was taken")

    def case_unknown_model(self):
        self.refused(openai.NotFoundError, model="no-such-model")

    def case_bad_parameters(self):
        for param, more in [("temperature", {"temperature": -1}), ("top_p", {"top_p": 2}), ("n", {"n": 0}), ("max_tokens", {"max_tokens": 0}),
                            ("logit_bias", {"logit_bias": {"-1": 1}}), ("stop", {"stop": [""]}), ("messages", {"messages": []})]:
            self.refused(openai.BadRequestError, param, **more)

    def case_cancel(self):
        running = lambda: [line for line in self.get("/metrics").splitlines() if line.startswith("glimpse_num_requests_running")][0].endswith(" 1")
        with self.chat(stream=True, max_tokens=1000, extra_body={"ignore_eos": True}) as stream:
            next(c for c in stream if c.choices and c.choices[0].delta.content)
            assert running(), "no request runs while one is streamed"
        deadline = time.monotonic() + 2
        while running():
            assert time.monotonic() < deadline, "the request runs on without its client"
            time.sleep(0.05)

    def case_retries(self):
        if not self.args.overload:
            raise Skipped("no --overload")
        outcomes = []

        def ask(retries):
            try:
                self.client.with_options(max_retries=retries).chat.completions.create(model=self.model, messages=self.messages, max_tokens=32, temperature=0)
                outcomes.append("answer")
            except openai.RateLimitError as e:
                outcomes.append("429" if e.response.headers.get("retry-after") else "429 without Retry-After")
            except openai.OpenAIError as e:
                outcomes.append(repr(e))

        for retries, want in (0, {"answer", "429"}), (30, {"answer"}):
            outcomes.clear()
            threads = [threading.Thread(target=ask, args=(retries,)) for _ in range(self.args.overload)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert set(outcomes) == want, f"with {retries} retries: {set(outcomes)}, want {want}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", default="")
    parser.add_argument("--prompt", default="What is the weather in Paris?", help="text that the model's vocabulary has")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one request")
    parser.add_argument("--overload", type=int, default=0)
    parser.add_argument("--only", default="", help="names of cases, with commas")
    cases = Cases(parser.parse_args())
    only = set(filter(None, cases.args.only.split(",")))
    names = [n.removeprefix("case_") for n in vars(Cases) if n.startswith("case_")]
    if unknown := only - set(names):
        sys.exit(f"unknown cases {sorted(unknown)}, want some of {names}")
    failed = 0
    for name in names:
        if only and name not in only:
            continue
        begin, outcome = time.monotonic(), "ok"
        try:
            getattr(cases, "case_" + name)()
        except Skipped as e:
            outcome = f"skipped: {e}"
        except Exception as e:  # whatever a case meets is its failure; the others go on
            failed += 1
            at = traceback.extract_tb(e.__traceback__)[-1]
            outcome = f"FAILED: {type(e).__name__}: {e} (line {at.lineno} of {at.name})"
        print(f"{name:20} {time.monotonic() - begin:6.2f} s  {outcome}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
