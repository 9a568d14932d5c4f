#!/usr/bin/env bash
# Compares what two builds of the programs compute, byte by byte: predictions of all policies, on the built-in model, golden
# families with traits and a GGUF file; adapters and logs of a few training steps; generated samples; what the server answers
# (lab/equal_server.py). For changes that are to change nothing.
#
#   ./lab/equal.sh OLD NEW [GGUF]   # folders with evict and train; the server wants a model whose template writes calls of tools
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"

[ $# -ge 2 ] || die "want OLD NEW [GGUF]"
old=$(absolute "$1") new=$(absolute "$2") gguf=${3:+$(absolute "$3")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=''

# both runs a command by both builds, in folders of their own.
both() { # NAME PROGRAM ARGUMENTS...
  local name=$1 program=$2 build
  shift 2
  for build in old new; do
    mkdir -p "$work/$build"
    (cd "$work/$build" && "${!build}/$program" "$@" >"$name.out" 2>"$name.err") || { tail -n 5 "$work/$build/$name.err"; die "$name: the $build build failed"; }
  done
}
# same compares files of both, named after NAME.
same() { # NAME FILE...
  local name=$1 file
  shift
  for file in "$@"; do
    if ! cmp "$work/old/$file" "$work/new/$file"; then failed=1; echo "differs  $name: $file"; return; fi
  done
  echo "equal    $name"
}
evaluation() { # NAME ARGUMENTS...
  local name=$1
  shift
  both "$name" evict eval -q --policy all --out "$name" "$@"
  # Everything but times.
  for build in old new; do
    python3 - "$work/$build/$name" >"$work/$build/$name.rows" <<'END'
import json, pathlib, sys
TIMES = ("ms", "seconds", "time", "ttft", "tokens_per_second", "elapsed")
def clean(x):
    if isinstance(x, dict):
        return {k: clean(v) for k, v in x.items() if not any(t in k for t in TIMES)}
    return [clean(v) for v in x] if isinstance(x, list) else x
for path in sorted(pathlib.Path(sys.argv[1]).rglob("predictions*.jsonl")):
    for line in path.read_text().splitlines():
        print(json.dumps(clean(json.loads(line)), sort_keys=True))
END
    [ -s "$work/$build/$name.rows" ] || die "$name: no predictions in $work/$build/$name"
  done
  same "$name" "$name.rows"
}

evaluation built-in --task synthetic --tokens 256 --samples 4 --budget 48
# Windows with caps, windows with sinks and experts, delta nets, shared keys and values; ids that all vocabularies have.
(cd "$work" && python3 -c 'import json, random
draw = random.Random(1)
for name, samples, least, most, tokens in ("ids", 4, 3, 60, 48), ("long", 2, 100, 20000, 400):
    with open(name + ".jsonl", "w") as out:
        for i in range(samples):
            print(json.dumps({"id": str(i), "prompt_ids": [draw.randrange(least, most) for _ in range(tokens)]}), file=out)')
for family in gemma2 gpt-oss qwen3.5 gemma4-e2b; do
  evaluation "$family" --model "$root/model/testdata/golden/$family" --data "$work/ids.jsonl" --samples 4 --budget 16 --max-new 8
done
[ -z "$gguf" ] || evaluation gguf --model "$gguf" --data "$work/long.jsonl" --samples 2 --budget 10% --max-new 8
for kind in lookahead judgeq; do
  both "$kind" train "$kind" -q --steps 6 --batch 4 --tokens 128 --out "$kind"
  same "six steps of $kind" $(cd "$work/old" && find "$kind" -name '*.safetensors' | sort)
done
both samples train generate -q --samples 64 --tokens 128 --out samples.jsonl
same "64 generated samples" samples.jsonl
[ -z "$gguf" ] || "$root/lab/equal_server.py" "$old" "$new" "$gguf" || failed=1
[ -z "$failed" ]
