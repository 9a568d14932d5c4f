#!/usr/bin/env python3
"""Writes evaluation/tasks/testdata/mtbench_prompts.json: the SHA-256 of MT-Bench's prompts for
a judge, filled in. The argument is fastchat/llm_judge/data/judge_prompts.jsonl of
github.com/lm-sys/FastChat."""
import hashlib
import json
import os
import sys

values = {
    "question": "Q1 {answer}?", "question_1": "Q1 {answer}?", "question_2": "Q2?",
    "answer": "A1\n", "answer_1": "A1\n", "answer_2": "A2",
    "ref_answer_1": "R1", "ref_answer_2": "R2",
}
out = {}
with open(sys.argv[1]) as f:
    for line in f:
        p = json.loads(line)
        if p["type"] == "single":
            text = p["system_prompt"] + "\0" + p["prompt_template"].format(**values)
            out[p["name"]] = hashlib.sha256(text.encode()).hexdigest()
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "..", "..", "evaluation", "tasks", "testdata", "mtbench_prompts.json"), "w") as f:
    json.dump(out, f, indent=1)
    f.write("\n")
