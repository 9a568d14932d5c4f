"""kvpress's own needle-in-a-haystack evaluation with adapters as presses, beside presses of kvpress's.

  python evaluate.py --evaluation kvpress/evaluation --model FOLDER --adapter DIR --haystack TEXT

--evaluation is the folder of that name in a clone of github.com/NVIDIA/kvpress, with what it imports installed;
--haystack is a text file: kvpress would fetch essays with a needle. How the needle is hidden, asked for and scored
is kvpress's. Prints mean ROUGE-L over depths, in %, a line for every press."""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from glimpse_kvpress import PRESSES

# Of github.com/gkamradt/LLMTest_NeedleInAHaystack, in the columns that kvpress reads.
NEEDLE = {
    "needle": "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.",
    "question": "Based on the content of the book, what is the best thing to do in San Francisco?",
    "answer_prefix": "Answer: ",
    "max_new_tokens": 64,
}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--evaluation", type=Path, required=True, help="folder evaluation of kvpress's repository")
    p.add_argument("--model", required=True, help="model folder")
    p.add_argument("--adapter", type=Path, action="append", default=[], help="adapter folder; may be repeated")
    p.add_argument("--heads", type=Path, help="budgets.json, by which the adapters' presses share budgets among KV heads")
    p.add_argument("--haystack", type=Path, required=True, help="text file")
    p.add_argument("--press", default="no_press,snapkv,pyramidkv,tova,knorm,streaming_llm", help="kvpress's presses, comma-separated")
    p.add_argument("--ratio", default="0.8,0.9,0.95", help="compression ratios, comma-separated")
    p.add_argument("--length", type=int, default=1024, help="tokens of a prompt")
    p.add_argument("--depths", type=int, default=10, help="number of depths")
    p.add_argument("--context-only", action="store_true", help="evict before the question is known, as is kvpress's default")
    return p.parse_args()


def main():
    o = options()
    ratios = [float(r) for r in o.ratio.split(",")]
    sys.path.insert(0, str(o.evaluation.resolve()))
    from evaluate import EvaluationConfig, EvaluationRunner
    from evaluate_registry import DATASET_REGISTRY, PRESS_REGISTRY

    names = o.press.split(",")
    for adapter in o.adapter:
        kind = json.loads((adapter / "glimpse.json").read_text())["kind"]
        PRESS_REGISTRY[kind] = PRESSES[kind](adapter, compression_ratio=ratios[0], heads=o.heads, context=o.context_only)
        names.append(kind)
    with tempfile.TemporaryDirectory() as work:
        DATASET_REGISTRY["needle_in_haystack"] = work
        Path(work, "test.jsonl").write_text(json.dumps({"context": o.haystack.read_text(), **NEEDLE}) + "\n")
        print("press", *(f"{r:g}" for r in ratios), sep="\t")
        for name in names:
            row = []
            for ratio in ratios[:1] if name == "no_press" else ratios:
                results = Path(work, "results", name, str(ratio))
                EvaluationRunner(EvaluationConfig(
                    dataset="needle_in_haystack", model=o.model, device="cpu", press_name=name, compression_ratio=ratio, output_dir=str(results),
                    max_context_length=o.length, needle_depth=[round(100 * d / max(1, o.depths - 1)) for d in range(o.depths)],
                    query_aware=not o.context_only, log_level="ERROR")).run_evaluation()
                scores = json.loads(next(results.glob("*/metrics.json")).read_text())
                row.append(statistics.mean(s["rouge-l"]["f"] for s in scores))
            print(name, *(f"{100 * s:.1f}" for s in row), sep="\t", flush=True)


if __name__ == "__main__":
    main()
