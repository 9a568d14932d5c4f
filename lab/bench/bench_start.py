#!/usr/bin/env python3
"""Times how long programs take from their start to the first token of an answer, beside llama.cpp's, in turns.

    lab/bench/bench_start.py --bin DIR FILE.gguf...

--bin     folder of llama.cpp's llama-server
--rounds  turns of both, of which medians are taken (5)
--threads of both (2)
--evict   the program (bin/evict)
--raw     texts without a chat template, for models that have none

A turn starts a server, waits until it listens, and asks two questions of about 90 tokens that share no words; then "evict run" is
asked the first. Files are in the system's memory before. Prints, in seconds: until it listens, until the first token of the first question counted from the
start of the program, the second question's first token, and of "evict run" until it has ended with one token.
"""
import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import time

FIRST = "The cache holds the keys and values of all tokens that were read so far. " * 5 + "What does it hold?"
SECOND = "Every morning seven ships leave the northern harbour before the sun has risen. " * 5 + "When do they leave?"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until_listening(port, process):
    while True:
        assert process.poll() is None, "the server ended"
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            c.request("GET", "/health")
            if c.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            c.close()
        time.sleep(0.002)


def first_token(port, text, model, raw):
    """Seconds until the first piece of a streamed answer, which is then read to its end."""
    asked = {"prompt": text} if raw else {"messages": [{"role": "user", "content": text}]}
    body = {"model": model, **asked, "stream": True, "max_tokens": 4, "temperature": 0, "cache_prompt": False}
    begin = time.perf_counter()
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST", "/v1/completions" if raw else "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200, r.read()
    took = None
    for line in r:
        if took is None and line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            if choices and (choices[0]["text"] if raw else choices[0]["delta"].get("content")):
                took = time.perf_counter() - begin
    c.close()
    assert took is not None, "no token came"
    return took


def serve(command, port, model, raw):
    begin = time.perf_counter()
    with open(os.devnull, "w") as nothing, subprocess.Popen(command, stdout=nothing, stderr=nothing) as p:
        try:
            until_listening(port, p)
            listening = time.perf_counter() - begin
            first = time.perf_counter() - begin + first_token(port, FIRST, model, raw)
            second = first_token(port, SECOND, model, raw)
        finally:
            p.terminate()
    return listening, first, second


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--bin", required=True)
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--threads", type=int, default=2)
    parse.add_argument("--evict", default="bin/evict")
    parse.add_argument("--raw", action="store_true")
    parse.add_argument("files", nargs="+")
    args = parse.parse_args()
    print("| file | program | listens | first token, from the start | second question |")
    print("|:---|:---|---:|---:|---:|")
    for path in args.files:
        with open(path, "rb") as f:
            while f.read(1 << 24):
                pass
        programs = {
            "llama-server": lambda port: [f"{args.bin}/llama-server", "-m", path, "--port", str(port), "-t", str(args.threads), "-np", "1", "-c", "4096", "--jinja"],
            "evict serve": lambda port: [args.evict, "serve", "--model", path, "--listen", f"127.0.0.1:{port}", "--served-model-name", "m", "--prefix-cache", "0"],
        }
        times, run = {name: [] for name in programs}, []
        for _ in range(args.rounds):
            for name, command in programs.items():
                port = free_port()
                times[name].append(serve(command(port), port, "m", args.raw))
            begin = time.perf_counter()
            subprocess.run([args.evict, "run", "--model", path, "--policy", "full", "--max-new", "1", *["--raw"] * args.raw, FIRST], check=True, capture_output=True)
            run.append(time.perf_counter() - begin)
        for name, t in times.items():
            m = [statistics.median(x) for x in zip(*t)]
            print(f"| {os.path.basename(path)} | {name} | {m[0]:.2f} | {m[1]:.2f} | {m[2]:.2f} |", flush=True)
        print(f"| {os.path.basename(path)} | evict run | | {statistics.median(run):.2f} | |", flush=True)


if __name__ == "__main__":
    main()
