#!/usr/bin/env python3
"""Asks a running `evict serve` by the clients that people have, one line a client. lab/peers/check_clients.sh calls it.

    clients/check.py --url http://127.0.0.1:8080 --model NAME --key KEY [--tools] [--only anthropic,codex]

--tools: the model's chat template knows tools, and the model calls them.
"""
import argparse
import asyncio
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import httpx
from pydantic import BaseModel

HERE = pathlib.Path(__file__).resolve().parent
QUESTION = "What is the capital of France?"
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Person(BaseModel):
    name: str
    age: int


def check(holds, what):
    if not holds:
        raise AssertionError(what)


class Clients:
    def __init__(self, args):
        self.url, self.model, self.key, self.tools, self.programs = args.url, args.model, args.key, args.tools, args.programs

    def answers(self, text):
        """The question is answered, and by the larger of the two models rightly."""
        check("Paris" in text or text.strip() and not self.tools, f"got {text[-300:]!r}")

    def page(self, heading):
        """The blocks of docs/agents.md below a heading, with the server's address, key and model in the place of the reader's."""
        text = (HERE.parents[2] / "docs" / "agents.md").read_text()
        section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
        blocks = re.findall(r"^```\w+\n(.*?)^```", section, re.M | re.S)
        check(blocks, f"docs/agents.md has no settings of {heading}")
        address = self.url.removeprefix("http://")
        return [re.sub(r"\bmine\b", self.model, re.sub(r"\bnone\b", self.key, b.replace("127.0.0.1:8080", address))) for b in blocks]

    def shell(self, home, script, timeout=1500, **env):
        """What a script says in a folder that is its home, with a network of the server alone."""
        nowhere = "http://127.0.0.1:9"
        env = os.environ | {"HOME": str(home), "PATH": os.pathsep.join([*self.programs.split(os.pathsep), os.environ["PATH"]]), "NO_COLOR": "1", "TERM": "dumb",
                            "https_proxy": nowhere, "http_proxy": nowhere, "no_proxy": "127.0.0.1,localhost"} | env
        out = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=home, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout, check=False)
        check(out.returncode == 0, f"{script.splitlines()[-1]}: exit status {out.returncode}: {(out.stdout + out.stderr)[-600:]}")
        return out.stdout

    def agent(self, heading, place, **env):
        """The settings of a heading in a new home, and what its commands say."""
        home = pathlib.Path(tempfile.mkdtemp())
        try:
            *settings, commands = self.page(heading)
            path = home / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(settings[0])
            (home / "prices.csv").write_text("apples,3\n")
            yield home, commands, self.shell(home, commands, **env)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    # Each client_NAME is a generator: it yields what it has done.

    def client_openai_python(self):
        out = subprocess.run(
            [sys.executable, HERE / "openai_python.py", "--base-url", self.url + "/v1", "--model", self.model, "--key", self.key, "--prompt", QUESTION],
            capture_output=True, text=True, check=False)
        failed = [line for line in out.stdout.splitlines() if "FAILED" in line]
        check(out.returncode == 0, "; ".join(failed) or out.stderr[-500:])
        lines = out.stdout.splitlines()
        yield f"{sum(line.endswith('ok') for line in lines)} cases"
        yield f"{sum('skipped' in line for line in lines)} skipped"

    def client_openai_agents(self):
        import agents
        from openai import AsyncOpenAI

        agents.set_tracing_disabled(True)
        client = AsyncOpenAI(base_url=self.url + "/v1", api_key=self.key, max_retries=0)
        model = agents.OpenAIResponsesModel(model=self.model, openai_client=client)
        settings = agents.ModelSettings(temperature=0, max_tokens=96, include_usage=True)
        calls = []

        @agents.function_tool
        def get_weather(city: str) -> str:
            """The weather of a city.

            Args:
                city: The city's name.
            """
            calls.append(city)
            return f"It is sunny in {city}, 21 degrees."

        async def run():
            plain = agents.Agent(name="plain", instructions="Answer in one short sentence.", model=model, model_settings=settings)
            answer = await agents.Runner.run(plain, QUESTION)
            check(answer.final_output, "no answer")
            check(answer.context_wrapper.usage.output_tokens > 0, "no usage")
            yield "an answer"
            again = await agents.Runner.run(plain, answer.to_input_list() + [{"role": "user", "content": "And of Spain?"}])
            check(again.final_output, "no answer to a second turn")
            yield "a second turn"
            streamed = agents.Runner.run_streamed(plain, QUESTION)
            text = ""
            async for event in streamed.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    text += event.data.delta
            check(text == answer.final_output == streamed.final_output, f"a stream says {text!r}, not {answer.final_output!r}")
            yield "a stream"
            typed = agents.Agent(name="typed", instructions="Say who is meant.", model=model, model_settings=settings, output_type=Person)
            person = (await agents.Runner.run(typed, "Karl is 42 years old.")).final_output
            check(isinstance(person, Person), f"got {person!r}")
            yield "a typed answer"
            if not self.tools:
                return
            required = agents.ModelSettings(temperature=0, max_tokens=96, tool_choice="required")
            for streams in False, True:
                calls.clear()
                # A small model may go on calling: the turn after the call is one of an agent without tools.
                agent = agents.Agent(name="weather", instructions="Use the tool.", model=model, model_settings=required, tools=[get_weather], tool_use_behavior="stop_on_first_tool")
                if streams:
                    result = agents.Runner.run_streamed(agent, "What is the weather in Paris?")
                    async for _ in result.stream_events():
                        pass
                else:
                    result = await agents.Runner.run(agent, "What is the weather in Paris?")
                check(calls and "aris" in calls[0] and "21" in result.final_output, f"calls of {calls}, {result.final_output!r}")
                told = (await agents.Runner.run(plain, result.to_input_list() + [{"role": "user", "content": "Say it in a sentence."}])).final_output
                check("21" in told or "sunny" in told, f"the result is not told: {told!r}")
                yield "a tool's result, streamed" if streams else "a tool's result"

        yield from collect(run())

    def client_anthropic(self):
        import anthropic

        client = anthropic.Anthropic(base_url=self.url, api_key=self.key, max_retries=0)
        asked = {"model": self.model, "max_tokens": 64, "extra_body": {"temperature": 0}, "messages": [{"role": "user", "content": QUESTION}]}
        message = client.messages.create(**asked)
        check(message.type == "message" and message.role == "assistant" and message.content[0].type == "text" and message.content[0].text, f"{message}")
        check(message.stop_reason in ("end_turn", "max_tokens") and message.usage.output_tokens > 0, f"{message}")
        yield "an answer"
        with client.messages.stream(**asked) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        check(final.content[0].text == message.content[0].text, f"a stream says {final.content[0].text!r}")
        check(kinds[0] == "message_start" and kinds[-1] == "message_stop", f"{kinds}")
        check(final.usage.output_tokens == message.usage.output_tokens, f"{final.usage} and {message.usage}")
        yield "a stream"
        system = [{"type": "text", "text": "Answer in one word.", "cache_control": {"type": "ephemeral"}}]
        blocks = [{"role": "user", "content": [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]}]
        count = client.messages.count_tokens(model=self.model, system=system, messages=blocks).input_tokens
        usage = client.messages.create(model=self.model, max_tokens=4, system=system, messages=blocks).usage
        check(count == usage.input_tokens + usage.cache_read_input_tokens, f"counted {count}, used {usage}")
        yield "count_tokens"
        word = message.content[0].text.split()[1]
        stopped = client.messages.create(**asked, stop_sequences=[word])
        check(stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == word, f"{stopped}")
        begun = client.messages.create(**asked | {"messages": asked["messages"] + [{"role": "assistant", "content": "The capital of"}]})
        check(begun.content, f"{begun}")
        yield "stop_sequences and a begun answer"
        for error, client_, more in [
            (anthropic.NotFoundError, client, {"model": "no-such-model"}), (anthropic.BadRequestError, client, {"extra_body": {"temperature": -1}}),
            (anthropic.AuthenticationError, client.with_options(api_key="wrong"), {}),
        ]:
            try:
                client_.messages.create(**asked | more)
            except error as e:
                check(e.body["type"] == "error" and e.body["error"]["type"] and e.body["error"]["message"], f"{e.body}")
            else:
                raise AssertionError(f"{more}: no {error.__name__}")
        yield "errors"
        if not self.tools:
            return
        tools = [{"name": "get_weather", "description": "The weather of a city.", "input_schema": WEATHER}]
        asked |= {"tools": tools, "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
        called = client.messages.create(**asked, tool_choice={"type": "any"})
        call = called.content[-1]
        check(called.stop_reason == "tool_use" and call.type == "tool_use" and "aris" in call.input["city"], f"{called}")
        with client.messages.stream(**asked, tool_choice={"type": "tool", "name": "get_weather"}) as stream:
            check(stream.get_final_message().content[-1].input == call.input, "a stream calls otherwise")
        asked["messages"] += [{"role": "assistant", "content": called.content},
                              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny, 21 degrees"}]}]}]
        after = client.messages.create(**asked, tool_choice={"type": "none"})
        check("21" in after.content[0].text or "sunny" in after.content[0].text, f"the result is not told: {after}")
        yield "tools"

    def client_langchain(self):
        from langchain_anthropic import ChatAnthropic
        from langchain_core.messages import AIMessage, ToolMessage
        from langchain_openai import ChatOpenAI, OpenAI

        common = {"model": self.model, "temperature": 0, "max_retries": 0}
        openai = {**common, "base_url": self.url + "/v1", "api_key": self.key, "max_tokens": 96}
        chats = {
            "ChatOpenAI": ChatOpenAI(**openai), "ChatOpenAI over responses": ChatOpenAI(**openai, use_responses_api=True),
            "ChatAnthropic": ChatAnthropic(**common, base_url=self.url, api_key=self.key, max_tokens=96),
        }
        check(OpenAI(base_url=self.url + "/v1", api_key=self.key, model=self.model, max_tokens=8, temperature=0).invoke("1, 2, 3,"), "no completion")
        yield "OpenAI"

        def weather(city: str) -> str:
            """The weather of a city."""
            return f"sunny in {city}, 21 degrees"

        for name, chat in chats.items():
            answer = chat.invoke(QUESTION)
            text = lambda m: m.text if isinstance(m.text, str) else m.text()
            check(text(answer) and answer.usage_metadata["output_tokens"] > 0, f"{name}: {answer}")
            whole = None
            for part in chat.stream(QUESTION):
                whole = part if whole is None else whole + part
            check(text(whole) == text(answer), f"{name}: a stream says {text(whole)!r}, not {text(answer)!r}")
            method = {} if name == "ChatAnthropic" else {"method": "json_schema"}
            if name != "ChatAnthropic" or self.tools:
                person = chat.with_structured_output(Person, **method).invoke("Karl is 42 years old.")
                check(isinstance(person, Person), f"{name}: {person}")
            if self.tools:
                bound = chat.bind_tools([weather], tool_choice="any")
                called = bound.invoke("What is the weather in Paris?")
                check(isinstance(called, AIMessage) and called.tool_calls[0]["name"] == "weather", f"{name}: {called}")
                call = called.tool_calls[0]
                after = chat.bind_tools([weather]).invoke([("user", "What is the weather in Paris?"), called, ToolMessage(weather(**call["args"]), tool_call_id=call["id"])])
                check("21" in text(after) or "sunny" in text(after), f"{name}: the result is not told: {after}")
            yield name

    def client_codex(self):
        """The requests of Codex's client, read as that reads answers."""
        bodies = json.loads((HERE / "codex.json").read_text())
        headers = {"Authorization": f"Bearer {self.key}", "Accept": "text/event-stream", "OpenAI-Beta": "responses=experimental", "originator": "codex_cli_rs",
                   "session_id": "0199c0f2-6d3b-7b11-9d5c-111111111111"}

        def ask(name, **more):
            body = bodies[name] | {"model": self.model, "tools": bodies["tools"] if self.tools else []} | more
            items, text, created, done = [], "", False, None
            with httpx.stream("POST", self.url + "/v1/responses", json=body, headers=headers, timeout=600) as r:
                check(r.status_code == 200, f"{name}: {r.status_code} {r.read() if r.status_code != 200 else ''}")
                for line in r.iter_lines():
                    if not line.startswith("data: "):
                        continue
                    event = json.loads(line[len("data: "):])
                    kind = event["type"]
                    check(kind not in ("response.failed", "error"), f"{name}: {event}")
                    created = created or kind == "response.created" and event["response"] is not None
                    if kind == "response.output_text.delta":
                        text += event["delta"]
                    elif kind == "response.output_item.done":
                        items.append(event["item"])
                    elif kind in ("response.completed", "response.incomplete"):
                        done = event["response"]
            check(created and done and done["id"], f"{name}: the stream has no beginning or end")
            for field in "input_tokens", "output_tokens", "total_tokens":
                check(isinstance(done["usage"][field], int), f"{name}: {done['usage']}")
            check(isinstance(done["usage"]["input_tokens_details"]["cached_tokens"], int) and isinstance(done["usage"]["output_tokens_details"]["reasoning_tokens"], int), f"{name}: {done['usage']}")
            check(done["output"] == items and items, f"{name}: {done['output']} and {items}")
            for item in items:
                if item["type"] == "function_call":
                    check(item["call_id"] and item["name"] and isinstance(item["arguments"], str), f"{name}: {item}")
                elif item["type"] == "message":
                    check(text == "".join(p["text"] for p in item["content"]), f"{name}: {item} of {text!r}")
            return items

        bound = {"max_output_tokens": 128, "temperature": 0}  # of no request of Codex's, which wait for as long as it takes
        first = ask("first", **bound)
        yield "a first turn, " + first[-1]["type"]
        ask("reasoning", **bound)
        yield "reasoning and include"
        history = bodies["first"]["input"] + bodies["history"]
        if not self.tools:
            history = [item for item in history if item["type"] in ("message", "reasoning")]
        ask("first", input=history + [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which file has the prices?"}]}], **bound)
        yield "a history of calls" if self.tools else "a history"
        done = ask("first", text=bodies["schema"], tools=[], **bound)
        check(isinstance(json.loads(done[-1]["content"][0]["text"])["done"], bool), f"{done}")
        yield "an output schema"

    def client_codex_cli(self):
        """Codex itself: npm's package carries the program. A server of MCP stands beside the settings of the page, which a model calls."""
        if not self.tools:
            yield "not asked: the model has no tools"
            return
        home = pathlib.Path(tempfile.mkdtemp())
        try:
            settings, commands = self.page("Codex")
            (home / ".codex").mkdir()
            # Short instructions of our own: those of Codex take a processor minutes.
            (home / "instructions.md").write_text("You are a coding agent. Use the tools to answer.")
            own = f'model_instructions_file = "{home}/instructions.md"\n'
            mcp = f'\n[mcp_servers.w]\ncommand = "{sys.executable}"\nargs = ["{HERE}/weather_mcp.py"]\ndefault_tools_approval_mode = "approve"\n'
            (home / ".codex/config.toml").write_text(own + settings + mcp)
            commands = commands.replace("codex exec", "codex exec --json --skip-git-repo-check --sandbox read-only").replace("Paris?", "Paris? Call mcp__w__get_weather.")
            out = self.shell(home, commands)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        items = [e["item"] for e in map(json.loads, filter(lambda line: line.startswith("{"), out.splitlines())) if e["type"] == "item.completed"]
        check(any(i["type"] == "agent_message" for i in items), f"no answer: {out[-600:]}")
        yield "an answer"
        calls = [i for i in items if i["type"] == "mcp_tool_call"]
        check(calls and calls[0]["status"] == "completed", f"no call of a tool: {out[-600:]}")
        yield f"a tool over MCP, {calls[0]['arguments']}"

    def client_continue(self):
        if not self.tools:
            yield "not asked: the model has no tools"
            return
        for _, commands, out in self.agent("Continue", ".continue/config.yaml", CONTINUE_TELEMETRY_ENABLED="0"):
            self.answers(out)
        yield "an answer with 9 tools, streamed"

    def client_opencode(self):
        if not self.tools:
            yield "not asked: the model has no tools"
            return
        for _, commands, out in self.agent("OpenCode", "opencode.json"):
            self.answers(out)
        yield "an answer with tools, streamed"

    def client_aider(self):
        for _, commands, out in self.agent("aider", ".aider.conf.yml"):
            self.answers(out)
            check("received" in out, f"no count of tokens: {out[-300:]!r}")
        yield "an answer, streamed"

    def client_llm(self):
        weather = "def weather(city: str) -> str: return 'sunny in ' + city + ', 21 degrees'"
        for home, commands, out in self.agent("llm", "llm/extra-openai-models.yaml", LLM_USER_PATH="llm"):
            self.answers(out)
            yield "an answer, streamed"
            typed = json.loads(self.shell(home, f"llm -m {self.model} -o temperature 0 -o max_tokens 64 --schema 'name, age int' 'Karl is 42 years old.'", LLM_USER_PATH="llm"))
            check(isinstance(typed["age"], int), f"{typed}")
            yield "a schema"
            if self.tools:
                # A small model may go on calling, which ends in an error: what counts is that the tool ran and its result went back.
                script = f'llm -m {self.model} -o temperature 0 -o max_tokens 256 --functions "{weather}" --td --cl 2 "What is the weather in Paris?" 2>&1 || true'
                said = self.shell(home, script, LLM_USER_PATH="llm")
                check("Tool call: weather" in said and "sunny in Paris" in said, f"got {said[-600:]!r}")
                yield "a tool"

    def client_langchain_page(self):
        scope = {}
        exec(self.page("LangChain")[0], scope)  # our own page
        self.answers("".join(part.text for part in scope["chat"].stream(QUESTION)))
        yield "a stream with the page's settings"

    def client_open_webui(self):
        """Open WebUI with the page's environment, asked as its own page asks it."""
        program = shutil.which("open-webui", path=self.programs)
        if not program:
            yield "not asked: it is fetched where --only names it"
            return
        home = pathlib.Path(tempfile.mkdtemp())
        address = "http://127.0.0.1:" + str(free_port())
        script = self.page("Open WebUI")[0].replace("open-webui serve", f"exec {program} serve --host 127.0.0.1 --port {address.rsplit(':', 1)[1]}")
        env = os.environ | {"HOME": str(home), "DATA_DIR": str(home), "WEBUI_AUTH": "false", "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
        with open(home / "log", "w") as log:
            server = subprocess.Popen(["bash", "-euc", script], cwd=home, env=env, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 600
            while True:
                try:
                    if httpx.get(address + "/health").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                check(server.poll() is None and time.monotonic() < deadline, "it did not start: " + (home / "log").read_text()[-600:])
                time.sleep(1)
            yield "started"
            token = httpx.post(address + "/api/v1/auths/signin", json={"email": "", "password": ""}).json()["token"]
            client = httpx.Client(base_url=address, headers={"Authorization": "Bearer " + token}, timeout=300)
            names = [m["id"] for m in client.get("/api/models").json()["data"]]
            check(self.model in names, f"models {names}")
            yield "the server's models"
            asked = {"model": self.model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24, "temperature": 0}
            whole = client.post("/api/chat/completions", json=asked).json()["choices"][0]["message"]["content"]
            self.answers(whole)
            text = ""
            with client.stream("POST", "/api/chat/completions", json=asked | {"stream": True}) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        for choice in json.loads(line[6:]).get("choices", []):
                            text += choice["delta"].get("content") or ""
            check(text == whole, f"a stream says {text!r}, not {whole!r}")
            yield "an answer and a stream"
        finally:
            server.terminate()
            server.wait()
            shutil.rmtree(home, ignore_errors=True)

    def client_lm_eval(self):
        with tempfile.TemporaryDirectory() as work:
            for name in (HERE / "lm_eval").iterdir():
                pathlib.Path(work, name.name).write_text(name.read_text())
            args = f"model={self.model},base_url={self.url}/v1/completions,num_concurrent=2,max_retries=1,auth_token={self.key},max_length=1024"
            env = os.environ | {"OPENAI_API_KEY": self.key, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": work}
            out = subprocess.run([pathlib.Path(sys.executable).parent / "lm_eval", "--model", "local-completions", "--model_args", args, "--batch_size", "2", "--include_path", work,
                                  "--tasks", "glimpse_capitals,glimpse_counting", "--output_path", work + "/out"], capture_output=True, text=True, cwd=work, env=env, check=False)
            check(out.returncode == 0, out.stderr[-1500:])
            results = json.loads(next(pathlib.Path(work, "out").rglob("results_*.json")).read_text())["results"]
        acc, exact = results["glimpse_capitals"]["acc,none"], results["glimpse_counting"]["exact_match,strip"]
        check(acc >= 0.75, f"accuracy {acc} of capitals, want at least 0.75")
        check(exact >= 0.5, f"{exact} of what is counted on, want at least 0.5")
        yield f"loglikelihood (accuracy {acc:.2f})"
        yield f"generate_until (exact {exact:.2f})"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def collect(async_generator):
    """The items of an asynchronous generator, one after another."""
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(anext(async_generator))
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--tools", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--without", default="")
    parser.add_argument("--programs", default="", help="folders of programs that clients are, as in PATH")
    args = parser.parse_args()
    clients, failed = Clients(args), 0
    names = [n.removeprefix("client_") for n in vars(Clients) if n.startswith("client_")]
    only = set(filter(None, args.only.split(",")))
    if unknown := only - set(names):
        sys.exit(f"unknown clients {sorted(unknown)}, want some of {names}")
    for name in names:
        if only and name not in only or name in args.without.split(","):
            continue
        begin, did = time.monotonic(), []
        try:
            for what in getattr(clients, "client_" + name)():
                did.append(what)
        except Exception as e:  # whatever a client meets is its failure; the others go on
            failed += 1
            at = [f for f in traceback.extract_tb(e.__traceback__) if f.filename == __file__][-1]
            did.append(f"FAILED: {type(e).__name__}: {e} (line {at.lineno})")
        print(f"{args.model:24} {name:16} {time.monotonic() - begin:6.1f} s  {', '.join(did)}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
