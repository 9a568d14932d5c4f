#!/usr/bin/env python3
"""Measures prompts or decoding of a GGUF file in bfloat16 with transformers and PyTorch on the processor. It takes the
arguments of llama.cpp's llama-bench that lab/bench/llamacppbench gives, and prints the rate as that does, so that it
stands where llama-bench would:

    pip install torch transformers==4.57.6 gguf accelerate
    go -C lab run ./bench/llamacppbench -bench lab/bench/pytorch_bench.py -caches float32 FILE.gguf

The cache is in bfloat16 whatever -ctk says, and a prompt of the same length runs before the one that counts.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
parser.add_argument("-m", type=Path, required=True, help="the file")
parser.add_argument("-t", type=int, default=2, help="threads")
parser.add_argument("-p", type=int, default=0, help="tokens of a prompt; 0: none")
parser.add_argument("-n", type=int, default=0, help="tokens that are decoded; 0: none")
parser.add_argument("-d", type=int, default=0, help="tokens before those that are decoded")
for ignored in ("-r", "-o", "-fa", "-ctk", "-ctv", "-ngl"):
    parser.add_argument(ignored, help="not used")
args = parser.parse_args()
torch.set_num_threads(args.t)
model = AutoModelForCausalLM.from_pretrained(args.m.parent, gguf_file=args.m.name, dtype=torch.bfloat16).eval()
tokens = lambda n: (torch.arange(n) * 7919 + 13)[None] % model.config.vocab_size

with torch.no_grad():
    if args.p:
        for _ in range(2):
            begin = time.perf_counter()
            model(tokens(args.p), past_key_values=DynamicCache(), logits_to_keep=1)
            took = time.perf_counter() - begin
        rate = args.p / took
    else:
        cache = DynamicCache()
        model(tokens(max(1, args.d)), past_key_values=cache, logits_to_keep=1)
        step = lambda i: model(torch.tensor([[i % model.config.vocab_size]]), past_key_values=cache)
        step(5)
        begin = time.perf_counter()
        for i in range(args.n):
            step(i)
        rate = args.n / (time.perf_counter() - begin)
print(json.dumps([{"avg_ts": rate}]))
