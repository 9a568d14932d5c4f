#!/usr/bin/env bash
# Bad input, tried as a user would, on the built binaries. One line per case, PASS
# or FAIL; a case passes if the command fails with exit code 1 (or the one stated),
# its error says what is expected, and it leaves nothing behind.
#
#   ./scripts/badinput.sh [-v]
#
# -v also prints the errors.
set -euo pipefail
source "$(dirname "$0")/common.sh"
verbose=no
[ "${1:-}" != -v ] || verbose=yes

scripts/setup.sh
go build -o bin/ ./cmd/...
PATH=$root/bin:$PATH
reference=$root/model/builtin/reference
adapters=$root/adapters/reference

work=$(mktemp -d)
cleanup() {
  cd /
  umount "$work/tiny" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir "$work/here" "$work/given"
cd "$work/here" # where the commands run, and must leave nothing
given=$work/given
failures=0 cases=0

report() { # NAME PROBLEM
  cases=$((cases + 1))
  if [ -z "$2" ]; then
    echo "PASS  $1"
  else
    failures=$((failures + 1))
    echo "FAIL  $1: $2"
  fi
  if [ -n "$2" ] || [ $verbose = yes ]; then sed 's/^/        /' "$work/stderr" | tail -n 6 | cut -c -300; fi
}

# Step logs and checkpoints are meant to outlive a run that ends early.
listing() { find . "$given" ! -name '*.log' ! -name '*.state' | sort; }

# expect runs a command; every "|"-separated piece of the text must be in its error.
expect() { # EXIT-CODE NAME TEXT COMMAND...
  local code=$1 name=$2 text=$3 problem='' got=0 before after piece pieces
  shift 3
  find . -mindepth 1 -delete
  before=$(listing)
  "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || got=$?
  after=$(listing)
  [ "$got" = "$code" ] || problem="exit code $got, want $code"
  IFS='|' read -ra pieces <<<"$text"
  for piece in "${pieces[@]}"; do
    grep -qF -- "$piece" "$work/stderr" || problem="${problem:+$problem; }the error does not say '$piece'"
  done
  if grep -qE '^(panic:|fatal error:|goroutine )' "$work/stderr"; then problem="${problem:+$problem; }it crashed"; fi
  [ "$before" = "$after" ] || problem="${problem:+$problem; }left behind: $(comm -13 <(echo "$before") <(echo "$after") | head -n 3 | tr '\n' ' ')"
  report "$name" "$problem"
}
refuse() { expect 1 "$@"; }

# broken copies the built-in model to a folder and prints its name.
broken() {
  cp -r "$reference" "$given/$1"
  echo "$given/$1"
}
overwrite() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; } # FILE OFFSET BYTES
example=(evict run --example needle --policy snapkv --budget 32)
quick=(train lookahead --steps 1 --batch 1 --validate 0)

refuse "instruction set that there is not" 'GLIMPSE_SIMD|level "avx1024", want one of' env GLIMPSE_SIMD=avx1024 "${example[@]}"
refuse "exact arithmetic with rounded keys" 'exact arithmetic: cache dtype: got "bf16", want auto or float32' "${example[@]}" --exact --cache-dtype bf16
refuse "exact arithmetic that is neither on nor off" 'GLIMPSE_EXACT' env GLIMPSE_EXACT=bf16 "${example[@]}"

echo "== model folders"
refuse "model folder missing" "no such file" "${example[@]}" --model ./nowhere
refuse "model name that is none" "no such folder|org/name" "${example[@]}" --model nowhere
HF_HUB_OFFLINE=1 HF_HOME=$given refuse "model of the hub without a network" "HF_HUB_OFFLINE|org/name" "${example[@]}" --model org/name
refuse "model folder that is an adapter" "judgeq|config.json|want a Hugging Face model folder" "${example[@]}" --model "$adapters/judgeq"
refuse "model is a file" "not a folder" "${example[@]}" --model "$reference/tokenizer.json"
printf 'GGUF\003\0\0\0' >"$given/model.gguf"
refuse "GGUF file cut short" "model.gguf|offset 8" "${example[@]}" --model "$given/model.gguf"
head -c 3000 "$root/model/gguf/testdata/llama.gguf" >"$given/cut.gguf"
refuse "GGUF file cut in its tensors" "cut.gguf|truncated" "${example[@]}" --model "$given/cut.gguf"
sed 's/^\(GGUF.*\)general.architecture\(.\{12\}\)llama/\1general.architecture\2bloom/' "$root/model/gguf/testdata/llama.gguf" >"$given/bloom.gguf"
refuse "GGUF file of another architecture" 'key "general.architecture": unknown architecture "bloom"|want one of: falcon, gemma2, gemma3, gemma4, glm4, glm4moe, gpt-oss, granite, lfm2, llama' "${example[@]}" --model "$given/bloom.gguf"
printf 'text' >"$given/text.gguf"
refuse "GGUF file that is none" 'text.gguf|want "GGUF"' "${example[@]}" --model "$given/text.gguf"
cp "$root/checkpoints/gguf/testdata/split-00001-of-00003.gguf" "$given"
refuse "GGUF file of a split model alone" "split-00002-of-00003.gguf|split-00003-of-00003.gguf" "${example[@]}" --model "$given/split-00001-of-00003.gguf"
refuse "GGUF file of the hub by a part of its name" 'file: got "Q4_K_M"' "${example[@]}" --model org/name:Q4_K_M
printf 'PK\003\004' >"$given/pytorch_model.bin"
refuse "model is a PyTorch pickle" "pytorch_model.bin: weights as a PyTorch pickle|save_pretrained" "${example[@]}" --model "$given/pytorch_model.bin"
mkdir "$given/peft" && echo '{"base_model_name_or_path": "org/base"}' >"$given/peft/adapter_config.json"
refuse "model is a PEFT adapter" "adapter for the model \"org/base\"|merge_and_unload" "${example[@]}" --model "$given/peft"
mkdir -p "$given/pair/a" "$given/pair/b" && echo '{}' | tee "$given/pair/a/config.json" >"$given/pair/b/config.json"
refuse "model folder with two models" "2 models within: a, b" "${example[@]}" --model "$given/pair"
mkdir -p "$given/models--org--name/snapshots/one" "$given/models--org--name/snapshots/two"
refuse "folder of the hub's cache without its branch" "2 snapshots and no refs/main" "${example[@]}" --model "$given/models--org--name"
refuse "address of a data set" "not the page of a model" "${example[@]}" --model https://huggingface.co/datasets/org/name
refuse "address of another server" "want s3://BUCKET/NAME or a path" "${example[@]}" --model https://example.com/org/name
refuse "model folder empty" "config.json" "${example[@]}" --model .
m=$(broken no-weights) && rm "$m/model.safetensors"
refuse "weights missing" "model.safetensors" "${example[@]}" --model "$m"
m=$(broken truncated) && head -c 100000 "$reference/model.safetensors" >"$m/model.safetensors"
refuse "weights truncated" "model.safetensors|truncated" "${example[@]}" --model "$m"
m=$(broken cut-header) && head -c 5 "$reference/model.safetensors" >"$m/model.safetensors"
refuse "weights cut in the header" "model.safetensors" "${example[@]}" --model "$m"
m=$(broken huge-header) && overwrite "$m/model.safetensors" 0 '\377\377\377\377\377\377\377\177'
refuse "weights with an impossible header length" "model.safetensors|header" "${example[@]}" --model "$m"
m=$(broken shapes) && sed -i 's/"intermediate_size": 384/"intermediate_size": 256/' "$m/config.json"
refuse "wrong shapes" "model.layers.3.mlp.down_proj.weight: shape [192 384], want [192 256]" "${example[@]}" --model "$m"
m=$(broken layers) && sed -i 's/"num_hidden_layers": 8/"num_hidden_layers": 9/' "$m/config.json"
refuse "tensors missing" "model.layers.8.self_attn.q_proj.weight: missing|model.layers.8.mlp.down_proj.weight: missing" "${example[@]}" --model "$m"
m=$(broken nan) && overwrite "$m/model.safetensors" 50000 '\300\177'
refuse "NaN weights" "is NaN" "${example[@]}" --model "$m"
refuse "NaN weights in training" "is NaN" "${quick[@]}" --model "$m" --out x
m=$(broken family) && sed -i 's/LlamaForCausalLM/GPT2LMHeadModel/' "$m/config.json"
refuse "unknown architecture" "GPT2LMHeadModel|LlamaForCausalLM" "${example[@]}" --model "$m"
m=$(broken config) && echo '{"architectures": [' >"$m/config.json"
refuse "config.json cut short" "config.json" "${example[@]}" --model "$m"
m=$(broken no-tokenizer) && rm "$m/tokenizer.json"
refuse "tokenizer absent" "tokenizer.json" evict run --model "$m" --policy snapkv "and so"
m=$(broken tokenizer) && echo '{}' >"$m/tokenizer.json"
refuse "tokenizer malformed" "tokenizer.json" evict run --model "$m" --policy snapkv "and so"
m=$(broken everything) && sed -i 's/"num_hidden_layers": 8/"num_hidden_layers": 3/; s/"intermediate_size": 384/"intermediate_size": 256/; s/"attention_bias": false/"attention_bias": true/' "$m/config.json"
refuse "missing, surplus and misshapen tensors in one error" "model.layers.0.self_attn.q_proj.bias: missing|model.layers.3.mlp.up_proj.weight\": surplus|model.layers.0.mlp.up_proj.weight: shape" "${example[@]}" --model "$m"
m=$(broken range) && sed -i 's/"num_key_value_heads": 2/"num_key_value_heads": 3/; s/"num_hidden_layers": 8/"num_hidden_layers": -4/' "$m/config.json"
refuse "config values out of range" "num_hidden_layers: got -4|num_key_value_heads: got 3" "${example[@]}" --model "$m"
m=$(broken scaling) && sed -i 's/"rope_scaling": null/"rope_scaling": {"rope_type": "dynamic"}/' "$m/config.json"
refuse "unknown RoPE scaling type" "\"dynamic\"|linear, llama3, longrope, proportional, yarn" "${example[@]}" --model "$m"
sharded() { # NAME: copies a model in three shards
  cp -r "$root/model/testdata/golden/llama2" "$given/$1"
  echo "$given/$1"
}
small=(evict run --policy snapkv --budget 4 --raw "and nobody saw where")
m=$(sharded cut-shard) && truncate -s -1000 "$m/model-00002-of-00003.safetensors"
refuse "shard truncated" "model-00002-of-00003.safetensors|truncated" "${small[@]}" --model "$m"
m=$(sharded no-shard) && rm "$m/model-00003-of-00003.safetensors"
refuse "index that names an absent file" "model-00003-of-00003.safetensors|no such file" "${small[@]}" --model "$m"
m=$(sharded swapped) && cp "$m/model-00001-of-00003.safetensors" "$m/model-00002-of-00003.safetensors"
refuse "shard that is another one" "model-00002-of-00003.safetensors" "${small[@]}" --model "$m"
m=$(sharded other-tokenizer) && cp "$reference"/tokenizer*.json "$m/"
refuse "tokenizer larger than the embedding" "tokenizer.json: 480 tokens for 256 rows|id 370, want 0 to 255" evict run --policy snapkv --raw --model "$m" often
m=$(sharded pointer) && printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n' | tee "$m/model-00002-of-00003.safetensors" >"$m/generation_config.json"
refuse "generation_config.json is a Git LFS pointer" "generation_config.json: a Git LFS pointer" "${small[@]}" --model "$m"
rm "$m/generation_config.json"
refuse "shard is a Git LFS pointer" "model-00002-of-00003.safetensors: a Git LFS pointer" "${small[@]}" --model "$m"
m=$(sharded page) && echo '<!DOCTYPE html><title>Sign in</title>' >"$m/config.json"
refuse "config.json is a page" "config.json: an HTML page" "${small[@]}" --model "$m"
m=$(sharded fifo) && rm "$m/config.json" && mkfifo "$m/config.json"
refuse "config.json is a FIFO" "config.json: a FIFO, want a regular file" "${small[@]}" --model "$m"
m=$(sharded endless) && ln -sf /dev/zero "$m/model-00001-of-00003.safetensors"
refuse "shard is a device" "model-00001-of-00003.safetensors: a device, want a regular file" "${small[@]}" --model "$m"
m=$(sharded policies) && head -c 2000000 /dev/zero >"$m/glimpse_policies.json"
refuse "policies of 2 MB" "glimpse_policies.json: 2000000 bytes, want at most 1048576" "${small[@]}" --model "$m"
m=$(sharded sampling) && echo '{"do_sample": true, "temperature": -1}' >"$m/generation_config.json"
refuse "sampling out of range in the model's file" "generation_config.json: temperature: got -1|--sampling greedy" "${small[@]}" --model "$m"
refuse "top-k of greedy decoding" "temperature: got 0, which is greedy" "${example[@]}" --temperature 0 --top-k 5
m=$(sharded other-component) && sed -i 's/"type": *"ByteLevel"/"type": "Nope"/' "$m/tokenizer.json"
refuse "tokenizer with an unknown component" "tokenizer.json|\"Nope\"|ByteLevel" "${small[@]}" --model "$m"
refuse "text longer than the context" "tokens|256" evict run --policy snapkv --raw --model "$root/model/testdata/golden/llama2" --prompt "$(seq 300 | tr '\n' ' ')"
m=$(sharded template) && echo '{"chat_template": "{% for m in messages %}{{ m.content }}"}' >"$m/tokenizer_config.json"
refuse "chat template cut short" "template|endfor" evict run --policy snapkv --model "$m" "and nobody"
refuse "unknown device" "cpu" "${example[@]}" --device abacus

echo "== prompts"
refuse "empty prompt" "empty" evict run ""
refuse "chat: budget 0" "budget: got 0" evict chat --budget 0
refuse "chat: unknown task" "want one of" evict chat --policy full --example chian
refuse "chat: unknown option" "page, dense" evict chat --policy quest --set quest.pages=4
refuse "empty prompt" "got an empty string" evict run ""
refuse "blank prompt as it is" "empty" evict run --raw "   "
refuse "empty prompt from standard input" "got an empty string" evict run --prompt -
refuse "no prompt" "got none, want one of" evict run
refuse "two prompts" "\"and\"|--prompt \"so\"" evict run "and" --prompt "so"
refuse "word that the model does not know" '"hello"|vocabulary' evict run "hello"
refuse "unknown example" "nope|needle" evict run --example nope
refuse "example longer than the context" "5000 tokens|4096" evict run --example needle --tokens 5000
refuse "example too short" "got 4 tokens" evict run --example needle --tokens 4
seq 4200 | awk '{ print $1 % 300 + 8 }' >"$given/long.ids"
refuse "prompt longer than the context" "4200 tokens|4096" evict run --token-ids "$given/long.ids"
echo "1 2 9999" >"$given/range.ids"
refuse "token id out of range" "9999|479" evict run --token-ids "$given/range.ids"
printf '1 2\n3 x\n' >"$given/word.ids"
refuse "token id that is none" "word.ids|line 2|\"x\"" evict run --token-ids "$given/word.ids"
: >"$given/empty.ids"
refuse "no token ids" "empty" evict run --token-ids "$given/empty.ids"
refuse "token id file missing" "no such file" evict run --token-ids nowhere

echo "== devices, FIFOs and holes"
mkfifo "$given/fifo.jsonl" "$given/fifo.yaml"
truncate -s 3G "$given/hole.jsonl" "$given/hole.yaml" "$given/hole.ids"
soon() { refuse "$1" "$2" timeout -s KILL 60 "${@:3}"; } # is refused, and not read to an end that there is none of
for at in "/dev/zero|a device" "$given/fifo.yaml|a FIFO" "$given/hole.yaml|3221225472 bytes, want at most 1048576" "$given|a folder"; do
  path=${at%%|*} says=${at#*|}
  soon "train run: $says" "$says" train run "$path"
  soon "train generate: $says" "$says" train generate "$path" --out x.jsonl
  soon "eval --config: $says" "$says" evict eval --config "$path"
  GLIMPSE_CONFIG=$path soon "GLIMPSE_CONFIG: $says" "$says" evict run --example needle --policy full
  for file in config.yaml predictions.jsonl; do
    rm -rf "$given/odd" && mkdir "$given/odd" && echo "tasks: section" >"$given/odd/config.yaml" && ln -sf "$path" "$given/odd/$file"
    case $file/$says in predictions.jsonl/32*) continue ;; esac # which may be long
    soon "report, $file: $says" "$file: $says" evict report "$given/odd" -o x.html
  done
  rm -rf "$given/odd"
done
for at in "/dev/zero|a device" "$given/fifo.jsonl|a FIFO" "$given/hole.jsonl|got zero bytes"; do
  path=${at%%|*} says=${at#*|}
  soon "--data: $says" "$says" "${quick[@]}" --data "$path" --out x
  soon "--prompts: $says" "$says" train generate --prompts "$path" --out x.jsonl
done
soon "--data - of zeros" "a zero byte" bash -c 'exec "$@" </dev/zero' - "${quick[@]}" --data - --out x
soon "token ids on a device" "a device" evict run --token-ids /dev/zero
soon "token ids with a hole" "line 1: more than 1048576 bytes" evict run --token-ids "$given/hole.ids"
mkdir "$given/long" && echo "tasks: section" >"$given/long/config.yaml" && ln -s "$given/hole.jsonl" "$given/long/predictions.jsonl"
soon "report of predictions without line ends" "no predictions" evict report "$given/long" -o x.html
rm -r "$given/long" "$given/fifo.jsonl" "$given/fifo.yaml" "$given/hole.jsonl" "$given/hole.yaml" "$given/hole.ids"
for command in "evict eval --policy snapkv --budget 32" "train generate --out x.jsonl"; do
  refuse "${command%% *}: batch of a thousand million" "batch: got 1000000000, want 1 to 4096" $command --samples 2 --batch 1000000000
done

echo "== servers"
if command -v python3 >/dev/null; then
  cat >"$work/server.py" <<'PYTHON'
import http.server, sys
kind, port_file, log = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        open(log, "a").write(f"{self.server.server_port} {self.headers.get('Authorization')}\n")
        if kind == "echo":
            self.send_response(401), self.end_headers()
            self.wfile.write(b"wrong key: " + self.headers.get("Authorization", "").encode())
        elif kind == "huge":
            path = self.path.split("?")[0]
            names = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
            if path.startswith("/api/"):
                self.send_response(200), self.end_headers()
                self.wfile.write(('{"sha": "%s", "siblings": [%s]}' % ("a" * 40, ", ".join('{"rfilename": "%s"}' % n for n in names))).encode())
            else:
                self.send_response(200)
                self.send_header("ETag", '"' + "b" * 64 + '"'), self.send_header("X-Repo-Commit", "a" * 40)
                self.send_header("X-Linked-Size", "1000000000000000000" if path.endswith(".safetensors") else "2"), self.end_headers()
        else:
            self.send_response(int(kind)), self.send_header("Location", f"http://127.0.0.1:{other.server_port}/v1"), self.end_headers()
    do_GET = do_HEAD = do_POST = do_PUT = answer
    def log_message(self, *a): pass
import threading
first, other = (http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2))
threading.Thread(target=other.serve_forever, daemon=True).start()
open(port_file, "w").write(str(first.server_port))
first.serve_forever()
PYTHON
  server() { # KIND: starts a server and sets $port
    rm -f "$work/port" "$work/asked"
    python3 "$work/server.py" "$1" "$work/port" "$work/asked" 2>/dev/null &
    served=$!
    until [ -s "$work/port" ]; do sleep 0.05; done
    port=$(cat "$work/port")
  }
  stopped() { kill "$served" && wait "$served" 2>/dev/null || true; }
  mkdir "$given/mt" && echo '{"question_id": 1, "category": "writing", "turns": ["anna calls bruno"]}' >"$given/mt/question.jsonl"
  evict eval --task mtbench --data "$given/mt" --policy full --max-new 4 --out "$given/judged" >/dev/null 2>&1
  touch "$given/judged/judgements.jsonl" # as an earlier attempt leaves it
  export OPENAI_API_KEY=sk-0123456789
  for kind in 302 307 echo; do
    server $kind
    says="redirects to http://127.0.0.1" && [ $kind != echo ] || says="wrong key: Bearer [key]"
    soon "judge that answers $kind" "$says" evict judge "$given/judged" --judge "http://127.0.0.1:$port/v1" --judge-model m --attempts 1
    [ "$(cut -d' ' -f1 "$work/asked" | sort -u)" = "$port" ] && ! grep -q sk-0 "$work/stderr" && problem='' || problem="the key went to another server, or is shown"
    report "key of a judge that answers $kind" "$problem"
    stopped
  done
  unset OPENAI_API_KEY
  server huge
  HF_HOME=$work/hub HF_ENDPOINT=http://127.0.0.1:$port soon "hub that announces 10^18 bytes" "not enough room" evict run --model org/huge --example needle
  stopped
else
  echo "SKIP  servers: there is no python3"
fi

echo "== budgets and names"
for b in 0 -3; do
  refuse "run: budget $b" "budget|got $b" evict run --example needle --budget $b
  refuse "eval: budget $b" "budget|got $b" evict eval --budget $b
  refuse "inspect: budget $b" "budget|got $b" evict inspect --example needle --budget $b
done
refuse "budget that is no number" "\"many\"" evict eval --budget 32,many
refuse "budget of more than the prompt" "got \"120%\"|at most 100%" "${example[@]}" --budget 120%
refuse "pseudo-queries of a policy" "shows no policy" evict inspect --queries --policy snapkv --example section
refuse "pseudo-queries beyond the context" "start 5000" evict inspect --queries --query-starts 5000 --example section
refuse "sweep that is none" "got 0 sweeps" evict eval --sweep-plot sweep.svg --samples 1
refuse "unknown policy" "\"snap\"|lookaheadkv|snapkv" evict run --example needle --policy snap
refuse "unknown policy in a list" "\"snap\"|lookaheadkv|snapkv" evict eval --policy full,snap
refuse "unknown task" "\"nope\"|hops" evict eval --task nope
refuse "unknown split" "\"nope\"|validation" evict eval --split nope
refuse "unknown policy option" "snapkv|window, kernel" "${example[@]}" --set snapkv.nope=3
refuse "policy option out of range" "odd" "${example[@]}" --set snapkv.kernel=2
refuse "samples -1" "got -1" evict eval --samples -1
refuse "evaluation longer than the context" "4096" evict eval --tokens 5000 --task section --samples 1 --policy full
refuse "unknown module" "\"nope\"|q_proj" "${quick[@]}" --modules q_proj,nope --out x
refuse "unknown training task" "\"nope\"|hops" "${quick[@]}" --task nope --out x
refuse "unknown loss" "\"nope\"|kl, mse" "${quick[@]}" --loss nope --out x
refuse "unknown command" "nope" evict nope
refuse "unknown flag" "--nope" train lookahead --nope

echo "== training settings"
refuse "steps 0" "steps|got 0" train lookahead --steps 0 --out x
refuse "batch 0" "batch|got 0" train lookahead --steps 1 --batch 0 --out x
refuse "rows 0" "rows|got 0" "${quick[@]}" --rows 0 --out x
refuse "rank beyond the model" "rank|got 1000" "${quick[@]}" --rank 1000 --out x
refuse "learning rate NaN" "learning rate|NaN" "${quick[@]}" --lr NaN --out x
refuse "learning rate that diverges" "not finite" train lookahead --steps 40 --batch 2 --lr 10 --weight-decay 10 --out x
refuse "init token out of range" "init token|479" "${quick[@]}" --init-token 480 --out x
refuse "threads -1" "threads|got -1" "${quick[@]}" --threads -1 --out x
refuse "no output folder named" "--out" "${quick[@]}"
refuse "run file missing" "no such file" train run nowhere.json
echo '{"steps": 3}' >"$given/unknown.json"
refuse "run file with an unknown setting" "unknown.json|steps" train run "$given/unknown.json"
echo '{"outs": ["x"], "train": {"adapters": [' >"$given/cut.json"
refuse "run file cut short" "cut.json" train run "$given/cut.json"
judgeq='"kind": "judgeq", "rows": 4, "learning_rate": 0.02, "pooling": 1'
run_file() { echo "{\"outs\": $2, \"train\": {\"steps\": 1, \"batch\": 1, \"adapters\": [$3]}}" >"$given/$1"; }
run_file kind.json '["x"]' "${judgeq/judgeq/nope}"
sed -i 's/\[\("kind.*\)\]/[{\1}]/' "$given/kind.json"
refuse "run file with an unknown kind" "\"nope\"|judgeq, lookaheadkv" train run "$given/kind.json"
run_file fewer.json '[]' "{$judgeq}"
refuse "run file with too few folders" "fewer.json|outs" train run "$given/fewer.json"
run_file twice.json '["x", "x"]' "{$judgeq}, {\"name\": \"b\", $judgeq}"
refuse "run file with one folder twice" "twice.json|x is the file of --out, too" train run "$given/twice.json"
run_file nameless.json '[""]' "{$judgeq}"
refuse "run file with an empty folder name" "nameless.json|outs" train run "$given/nameless.json"

echo "== training data"
train generate --samples 4 --max-new 16 --out "$given/pairs.jsonl" 2>/dev/null
data() { refuse "$1" "$2" "${quick[@]}" --data "$given/$3" --out x; }
data "pair file missing" "no such file" nowhere.jsonl
: >"$given/empty.jsonl"
data "pair file empty" "empty.jsonl" empty.jsonl
head -n 1 "$given/pairs.jsonl" >"$given/header.jsonl"
data "pair file without pairs" "header.jsonl|no examples" header.jsonl
head -n 3 "$given/pairs.jsonl" | head -c -100 >"$given/cut.jsonl"
data "pair file cut short" "cut.jsonl:3|prompt_ids" cut.jsonl
sed '3s/"prompt_ids":\[1,/"prompt_ids":[2,/' "$given/pairs.jsonl" >"$given/changed.jsonl"
data "pair file with a changed number" "changed.jsonl:3|not what was written here" changed.jsonl
sed 's/,"check":"[^"]*"}$/}/' "$given/pairs.jsonl" >"$given/plain.jsonl" # edited on purpose
sed '2s/"response_ids"/"responses"/' "$given/plain.jsonl" >"$given/field.jsonl"
data "pair file with an unknown field" "field.jsonl:2|\"responses\"" field.jsonl
sed '3s/"prompt_ids":\[1,/"prompt_ids":["one",/' "$given/plain.jsonl" >"$given/type.jsonl"
data "pair file with a word for an id" "type.jsonl:3|prompt_ids" type.jsonl
sed '3s/"prompt_ids":\[1,/"prompt_ids":[9999,/' "$given/plain.jsonl" >"$given/range.jsonl"
data "pair file with an id out of range" "range.jsonl|prompt_ids|9999|479" range.jsonl
sed '1s/"weights_sha256":"[0-9a-f]\{4\}/"weights_sha256":"0000/' "$given/plain.jsonl" >"$given/other.jsonl"
data "pair file of another model" "other.jsonl|0000" other.jsonl
prompts() {
  echo "$3" >"$given/prompts.jsonl"
  refuse "$1" "$2" train generate --prompts "$given/prompts.jsonl" --out x.jsonl
}
prompts "prompts: no JSON" "prompts.jsonl:1" 'once upon a time'
prompts "prompts: wrong type" "prompts.jsonl:1|\"prompt\"" '{"prompt": 3}'
prompts "prompts: no prompt" "prompts.jsonl:1|prompt_ids" '{"question": "why"}'
prompts "prompts: no ids" "prompts.jsonl:1|prompt_ids" '{"prompt_ids": []}'
prompts "prompts: unknown word" "prompts.jsonl:1|\"hello\"" '{"prompt": "hello"}'
prompts "prompts: empty file" "no examples" ''
refuse "prompts: file missing" "no such file" train generate --prompts nowhere.jsonl --out x.jsonl
refuse "generate: samples 0" "got 0" train generate --samples 0 --out x.jsonl
refuse "generate: longer than the context" "4096" train generate --samples 1 --tokens 5000 --out x.jsonl

echo "== training configurations, plans, sweeps and shards"
configured() { # NAME TEXT YAML [COMMAND]
  printf '%b' "$3" >"$given/c.yaml"
  refuse "$1" "$2" train ${4:-run} "$given/c.yaml"
}
configured "configuration: unknown key" 'c.yaml:2: unknown key "stesp"' 'tasks: section\nstesp: 3\n'
configured "configuration: unknown key of validation" 'c.yaml:3: train.validation: unknown key "evry", did you mean "every"' 'train:\n  validation:\n    evry: 3\n'
configured "configuration: word for a number" 'c.yaml:1: train.steps: got "many"' 'train: {steps: many}'
configured "configuration: key twice" '"tokens"' 'tokens: 3\ntokens: 4\n'
configured "configuration: a list" "want a mapping" '[1, 2]'
configured "configuration: not YAML" "c.yaml" 'a: [1'
configured "configuration: unknown preset" 'unknown preset "lookahead"|judgeq, lookaheadkv' 'preset: lookahead'
configured "configuration: unknown module" 'unknown module "w"' 'adapters: [{kind: lookaheadkv, modules: w}]'
configured "configuration: no rate" "learning rate: got 0" 'outs: [x]\nadapters: [{kind: judgeq}]\n'
configured "configuration: patience without validations" "patience 2" 'outs: [x]\ntrain: {validation: {patience: 2}}\nadapters: [{kind: judgeq, learning_rate: 0.1}]\n'
configured "configuration: epochs of an endless stream" "epochs: got 3" 'outs: [x]\nepochs: 3\nadapters: [{kind: judgeq, learning_rate: 0.1}]\n'
refuse "--set of an unknown key" 'unknown key "rank"' train run "$root/scripts/examples/run.yaml" --set rank=3
refuse "--set of an element that is not there" '"7"' train run "$root/scripts/examples/run.yaml" --set adapters.7.rows=3
refuse "preset of another kind" "judgeq|lookaheadkv" "${quick[@]}" --preset judgeq --out x
refuse "held-out pairs without data" "--held-out" "${quick[@]}" --held-out "$given/pairs.jsonl" --out x
refuse "validations on too few pairs" "4 samples|10" "${quick[@]}" --data "$given/pairs.jsonl" --validate 2 --validate-every 1 --out x
mkdir "$given/nopairs"
refuse "folder without pairs" "nopairs|*.jsonl" "${quick[@]}" --data "$given/nopairs" --out x
refuse "plan of a model without lengths" "--prompt-tokens" train plan "$root/scripts/examples/run.yaml" --model "$reference"
refuse "plan beyond the context" "4096" train plan --preset lookaheadkv --tokens 5000
configured "sweep without a grid" "sweep: missing" 'run: x\nadapters: [{kind: judgeq, learning_rate: 0.1}]\n' sweep
configured "sweep of two adapters" "got 2 adapters" 'run: x\nsweep: {rows: [1]}\nadapters: [{kind: judgeq}, {kind: judgeq}]\n' sweep
configured "sweep with one point twice" "twice" 'run: x\nsweep: {rows: [4, 4]}\nadapters: [{kind: judgeq, learning_rate: 0.1}]\n' sweep
for shard in 3/3 x/3 -1/3 2; do
  refuse "generate: shard $shard" "--shard|got \"$shard\"" train generate --samples 9 --shard=$shard --out x
done
refuse "generate: worker without a shard" "JOB_COMPLETION_INDEX|\"5\"" env JOB_COMPLETION_INDEX=5 train generate --samples 9 --shards 3 --out x
refuse "generate: more shards than samples" "9" train generate --samples 9 --shards 10 --out x
refuse "generate: unknown recipe" '"lookahed"|lookaheadkv' train generate --recipe lookahed --out x.jsonl
refuse "generate: unknown source of responses" '"teacher"' train generate --responses teacher --out x.jsonl
configured "generate: no path" "source 0: got no path" 'out: x.jsonl\nsources: [{weight: 1}]\n' generate
configured "generate: negative weight" "weight: got -1" 'out: x.jsonl\nsources: [{path: x, weight: -1}]\n' generate
configured "generate: unknown format" '"xlsx"|parquet' "out: x.jsonl\nsources: [{path: $given/pairs.jsonl, format: xlsx}]\n" generate
head -c 400 /dev/zero >"$given/zero.parquet"
refuse "generate: no Parquet" "zero.parquet|Parquet" train generate --prompts "$given/zero.parquet" --out x.jsonl
{ printf 'PAR1'; head -c 100 /dev/zero; printf '\0\0\0\200PAR1'; } >"$given/footer.parquet"
refuse "generate: Parquet with a footer of 2 GiB" "footer.parquet|a footer of 2147483648 bytes in a file of 112" train generate --prompts "$given/footer.parquet" --out x.jsonl
{ printf 'PAR1\x19\xfc\xff\xff\xff\x07\x06\0\0\0PAR1'; } >"$given/list.parquet"
refuse "generate: Parquet with a list of 16 million" "list.parquet|claims more than it holds" train generate --prompts "$given/list.parquet" --out x.jsonl
head -c 400 /dev/zero | tr '\0' '\377' >"$given/binary.txt"
refuse "generate: binary file" "binary.txt|UTF-8" train generate --prompts "$given/binary.txt" --out x.jsonl
unread() { # NAME TEXT FILE: the same of both readers of prompts
  refuse "generate: $1" "$2" train generate --prompts "$given/$3" --out x.jsonl
  refuse "eval: $1" "$2" evict eval --policy full --data "$given/$3"
}
printf '\377\376{\0"\0' | tail -c +3 >"$given/unmarked.jsonl"
unread "UTF-16 without its mark" "unmarked.jsonl: got zero bytes" unmarked.jsonl
printf '\037\213\010\0' >"$given/packed.jsonl"
unread "gzip by another name" "packed.jsonl: got gzip data, want text|the name ends in .gz" packed.jsonl
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\n' >"$given/pointer.jsonl"
unread "a Git LFS pointer for prompts" "pointer.jsonl: a Git LFS pointer" pointer.jsonl
mkdir "$given/saved" && printf '\377\377\377\377' >"$given/saved/data-00000-of-00001.arrow" && echo '{}' >"$given/saved/state.json"
unread "save_to_disk" "saved: got an Arrow file|to_parquet(" saved
cp "$root/datasets/testdata/empty.parquet" "$given/"
unread "Parquet without rows" "empty.parquet: got no examples" empty.parquet
echo 'question,answer' >"$given/header.csv"
unread "CSV without rows" "header.csv: got no examples" header.csv
printf 'prompt,prompt\na,b\n' >"$given/twice.csv"
unread "CSV with a field twice" 'twice.csv: header: field "prompt": got it twice' twice.csv
echo '{"prompt": NaN}' >"$given/nan.jsonl"
unread "NaN for a prompt" 'nan.jsonl:1: field "prompt": got NaN' nan.jsonl
echo '{"prompt": ""}' >"$given/blank.jsonl"
unread "empty prompt in a file" 'blank.jsonl:1: field "prompt": got an empty string' blank.jsonl
echo '[{"text": "anna"}, {"te' >"$given/cut.json"
refuse "generate: JSON cut short" "cut.json|element 1" train generate --prompts "$given/cut.json" --out x.jsonl
echo '{"conversations": [{"from": "narrator", "value": "x"}]}' >"$given/sharegpt.jsonl"
refuse "generate: unknown speaker" "narrator|human" train generate --prompts "$given/sharegpt.jsonl" --out x.jsonl

echo "== adapters"
refuse "adapter missing" "nowhere" evict run --example needle --adapter nowhere
refuse "adapter that is a model" "not an adapter folder" evict run --example needle --adapter "$reference"
refuse "adapter of another kind" "lookaheadkv" evict run --example needle --policy lookaheadkv --adapter "$adapters/judgeq"
refuse "two adapters of one name" "NAME=DIR" evict run --example needle --adapter "$adapters/judgeq" --adapter "$adapters/judgeq"
m=$(broken other-weights) && overwrite "$m/model.safetensors" 50000 '\022\064'
refuse "adapter of another model" "glimpse-reference|other-weights" evict run --model "$m" --example needle --adapter "$adapters/lookaheadkv"
damaged() { # NAME: copies an adapter
  cp -r "$adapters/lookaheadkv" "$given/$1"
  echo "$given/$1"
}
a=$(damaged changed) && overwrite "$a/lookahead_embeddings.safetensors" 5000 '\022\064'
refuse "adapter changed after its export" "lookahead_embeddings.safetensors|sha256" evict run --example needle --adapter "$a"
if command -v python3 >/dev/null; then
  # Damaged with care: hashes and digest are right.
  resigned() { # NAME NUMBER ROWS: numbers of the rows, and how many the manifest claims
    python3 - "$(damaged "$1")" "$2" "$3" <<'PYTHON'
import hashlib, re, struct, sys
folder, number, rows = sys.argv[1], float(sys.argv[2]), sys.argv[3]
name = "lookahead_embeddings.safetensors"
data = open(f"{folder}/{name}", "rb").read()
start = 8 + struct.unpack("<Q", data[:8])[0]
if number:
    data = data[:start] + struct.pack("<f", number) * ((len(data) - start) // 4)
    open(f"{folder}/{name}", "wb").write(data)
text = open(f"{folder}/glimpse.json").read()
text = re.sub(f'("{name}": )"[0-9a-f]*"', r'\1"%s"' % hashlib.sha256(data).hexdigest(), text)
if int(rows):
    text = re.sub(r'("rows": )[0-9]+', r"\g<1>" + rows, text, count=1)
text = re.sub(r'("digest": )"[0-9a-f]*"', r'\1"%s"' % ("0" * 64), text)
digest = hashlib.sha256(text.encode()).hexdigest()
open(f"{folder}/glimpse.json", "w").write(re.sub(r'("digest": )"0*"', r'\1"%s"' % digest, text))
PYTHON
    echo "$given/$1"
  }
  a=$(resigned huge 3e38 0)
  refuse "adapter of numbers that no norm can square" "embeddings: row 0: squares sum to" evict run --example needle --adapter "$a"
  a=$(resigned many 0 200000)
  refuse "adapter of 200,000 rows" "200000 rows|want 1 to 4096" evict run --example needle --adapter "$a"
else
  echo "SKIP  adapters of absurd numbers: there is no python3"
fi
a=$(damaged incomplete) && rm "$a/adapter_model.safetensors"
refuse "adapter without its LoRA file" "adapter_model.safetensors" evict run --example needle --adapter "$a"
a=$(damaged cut) && head -c 500 "$adapters/lookaheadkv/glimpse.json" >"$a/glimpse.json"
refuse "adapter with glimpse.json cut short" "glimpse.json" evict run --example needle --adapter "$a"

echo "== prefill policies, drafts and patterns"
refuse "unknown policy lists all" "\"adakw\"|adakv|compose|duoattention|knorm|lacache|laq++|speckv" evict run --example needle --policy adakw
refuse "unknown option of a wrapper" "adakv|scorer, alpha" "${example[@]}" --set adakv.nope=0.5
refuse "policy that cannot score" "\"full\"|dapq, expectedattention, h2o, judgeq" evict run --example needle --policy adakv --set adakv.scorer=full
refuse "share above one" "got \"1.5\"|from 0 to 1" "${example[@]}" --set adakv.alpha=1.5
refuse "span of 0" "got \"0\"|from 1 to" "${example[@]}" --set lacache.span=0
refuse "half a draft token" "got \"8.5\"|whole" "${example[@]}" --set laq++.lookahead=8.5
refuse "unknown grouping" "\"median\"|mean, max, sum" "${example[@]}" --set snapkv.group=median
refuse "unknown content" "\"poem\"|ends, random, span, fixed" "${example[@]}" --set dapq.content=poem
refuse "choice by number" "\"1\"|uniform, pyramid" "${example[@]}" --set compose.layers=1
m=$(broken policy-options) && echo '{"snapkv": {"group": "median"}}' >"$m/glimpse_policies.json"
refuse "unknown grouping in a model folder" "glimpse_policies.json|\"median\"" "${example[@]}" --model "$m"
refuse "adapter for a policy that takes none" "judgeq|no policy of snapkv takes it" "${example[@]}" --adapter "$adapters/judgeq"
refuse "adapter for a wrapper of a scorer that takes none" "no policy of adakv takes it" evict run --example needle --policy adakv --adapter "$adapters/judgeq"
refuse "adapter of another kind for a wrapper" "lookaheadkv" evict run --example needle --policy adakv --set adakv.scorer=lookaheadkv --adapter "$adapters/judgeq"
refuse "draft for a policy that takes none" "\"self\"|no policy of snapkv takes it" "${example[@]}" --draft self
speculative=(evict run --example needle --policy speckv --budget 32)
refuse "draft model missing" "nowhere|no such folder" "${speculative[@]}" --draft nowhere
refuse "draft with more layers than the model" "got 9 layers|1 to 8" "${speculative[@]}" --draft layers:9
refuse "draft with no number of layers" "\"few\"" "${speculative[@]}" --draft layers:few
refuse "two drafts of one name" "NAME=DIR" "${speculative[@]}" --draft self --draft self=layers:2
m=$(broken seldom) && sed -i 's/"often": 370/"seldom": 370/' "$m/tokenizer.json"
refuse "draft model with other words" "model seldom|\"seldom\"|\"often\"" "${speculative[@]}" --draft "$m"
refuse "draft model with other words, in an evaluation" "\"seldom\"" evict eval --policy snapkv,speckv --draft "$m" --samples 1000000
m=$(broken wordless) && rm "$m/tokenizer.json" && sed -i 's/"vocab_size": 480/"vocab_size": 479/' "$m/config.json"
refuse "draft model of other shapes" "embed_tokens.weight|[479 192]" "${speculative[@]}" --draft "$m"
duo=(evict run --example needle --policy duoattention --budget 32)
pattern() { # NAME: copies the model's pattern
  cp -r "$reference/duoattention" "$given/pattern-$1"
  echo "$given/pattern-$1"
}
refuse "pattern missing" "nowhere|config.json" "${duo[@]}" --pattern nowhere
refuse "pattern that is a model" "sink_size" "${duo[@]}" --pattern "$reference"
refuse "pattern for a policy that takes none" "no policy of snapkv takes it" "${example[@]}" --pattern "$reference/duoattention"
p=$(pattern layers) && sed -i 4d "$p/full_attention_heads.tsv"
refuse "pattern of fewer layers" "7 layers of 2 KV heads, want 8 of 2" "${duo[@]}" --pattern "$p"
p=$(pattern heads) && sed -i 's/$/\t1/' "$p/full_attention_heads.tsv"
refuse "pattern of more heads" "8 layers of 3 KV heads, want 8 of 2" "${duo[@]}" --pattern "$p"
p=$(pattern ragged) && sed -i '2s/\t.*//' "$p/full_attention_heads.tsv"
refuse "pattern with a line cut short" "line 2|1 heads, want 2" "${duo[@]}" --pattern "$p"
p=$(pattern words) && sed -i '3s/.*/high\tlow/' "$p/full_attention_heads.tsv"
refuse "pattern of words" "line 3|\"high\"" "${duo[@]}" --pattern "$p"
p=$(pattern headless) && rm "$p/full_attention_heads.tsv"
refuse "pattern without its numbers" "full_attention_heads.tsv|no such file" "${duo[@]}" --pattern "$p"
p=$(pattern unsized) && echo '{"recent_size": 24}' >"$p/config.json"
refuse "pattern without its sizes" "config.json|sink_size" "${duo[@]}" --pattern "$p"
m=$(broken patternless) && rm -r "$m/duoattention"
refuse "model without a pattern" "duoattention|evict patterns" "${duo[@]}" --model "$m"
refuse "patterns: no folder named" "--out" evict patterns
refuse "patterns: samples 0" "got 0" evict patterns --samples 0 --out x
refuse "patterns: folder exists" "already exists" evict patterns --samples 1 --out "$given/pattern-headless"
refuse "patterns: longer than the context" "4096" evict patterns --samples 1 --tokens 5000 --out x
refuse "patterns: a recent size below 0" "got 128 and -1" evict patterns --recent -1 --out x
stop_patterns=(evict patterns --samples 1000000 --out x)
expect 130 "Ctrl-C in finding a pattern" "stopped by a signal" timeout --preserve-status -s INT 1.5 "${stop_patterns[@]}"
refuse "two forms of the list of policies" "--markdown" evict policies --json --markdown

echo "== output"
mkdir "$given/mine" && echo data >"$given/mine/file"
refuse "adapter folder exists" "already exists" "${quick[@]}" --out "$given/mine"
refuse "folder to replace is no adapter" "not an adapter folder|\"file\"" "${quick[@]}" --out "$given/mine" --replace
refuse "adapter folder is a file" "pairs.jsonl" "${quick[@]}" --out "$given/pairs.jsonl" --replace
refuse "adapter folder cannot be made" "x" "${quick[@]}" --out /proc/x
refuse "adapter folder below a file" "not a directory" "${quick[@]}" --out "$given/pairs.jsonl/x"
refuse "pair file cannot be made" "no such file" train generate --samples 1 --out nowhere/x.jsonl
small=(evict eval --samples 1 --task section --policy snapkv --budget 32)
for flag in json-out table-out plot needle-plot; do
  refuse "eval: --$flag cannot be made" "nowhere" "${small[@]}" --$flag nowhere/x.png
done
for flag in json-out table-out plot needle-plot; do
  refuse "eval: --$flag exists" "--$flag|--replace" "${small[@]}" --$flag "$given/pairs.jsonl"
done
for flag in plot needle-plot; do
  refuse "eval: --$flag of another ending" ".png, .svg or .pdf" "${small[@]}" --$flag x.jpg
done
refuse "report of no run" "RUN" evict report
refuse "report of no run's folder" "not the folder of a run" evict report "$given" -o x.html
refuse "report of another ending" ".html or .md" evict report "$given" -o x.txt
for flag in html npz; do
  refuse "inspect: --$flag exists" "--$flag|--replace" evict inspect --policy snapkv --budget 32 --example needle --$flag "$given/pairs.jsonl"
done
refuse "eval: one file for two outputs" "--table-out" "${small[@]}" --json-out x --table-out ./x
refuse "train: log and checkpoint are one file" "--log: x is the file of --checkpoint, too" "${quick[@]}" --out y --log x --checkpoint ./x
refuse "generate: the output exists" "--replace" train generate --samples 1 --out "$given/pairs.jsonl"
refuse "log over a file" "--log|exists" "${quick[@]}" --out x --log "$given/pairs.jsonl"
refuse "log over the training data" "reads" "${quick[@]}" --out x --data "$given/pairs.jsonl" --log "$given/pairs.jsonl" --replace
mkfifo "$given/unread"
refuse "eval: a FIFO that nobody reads" "nobody reads this FIFO" "${small[@]}" --json-out "$given/unread"
[ -p "$given/unread" ] || die "the FIFO was replaced"
rm "$given/unread"

echo "== object stores and checkpoints"
export AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
nobody=(--s3-endpoint http://127.0.0.1:1)
refuse "export: no target" "RUN DIR|s3://BUCKET/NAME" train export "$adapters/judgeq"
refuse "export: run missing" "no such file" train export nowhere x
refuse "export: a folder that is no run" "want an adapter folder, a checkpoint, or the folder of a run" train export "$reference" x
refuse "export: a file that is no checkpoint" "config.json|header" train export "$reference/config.json" x
refuse "export: unknown adapter" '"nope"|judgeq' train export "$adapters/judgeq" x --adapter nope
refuse "export: target exists" "already exists" train export "$adapters/judgeq" "$given/mine"
refuse "export: replace in a bucket" "never replaced" train export "$adapters/judgeq" s3://bucket/x --replace
refuse "export: bucket without a name" "s3://BUCKET/NAME" train export "$adapters/judgeq" s3://bucket
refuse "export: other scheme" "s3://BUCKET/NAME" train lookahead --steps 1 --out x --export gs://bucket/x
refuse "export: no region" "region" train export "$adapters/judgeq" s3://bucket/x
refuse "export: endpoint that is no address" "endpoint|nonsense" train export "$adapters/judgeq" s3://bucket/x --s3-endpoint nonsense
AWS_MAX_ATTEMPTS=2 refuse "export: no server there" "s3://bucket/x|refused" train export "$adapters/judgeq" s3://bucket/x "${nobody[@]}"
AWS_MAX_ATTEMPTS=2 refuse "adapter: no server there" "s3://bucket/x|refused" evict run --example needle --adapter s3://bucket/x "${nobody[@]}"
AWS_MAX_ATTEMPTS=2 refuse "model: no server there" "s3://bucket/x|refused" "${example[@]}" --model s3://bucket/x "${nobody[@]}"
in_bucket=(train generate --samples 9 --out s3://bucket/x)
refuse "generate: bucket without --shards" "s3://bucket/x|--shards" "${in_bucket[@]}"
refuse "generate: bucket without a name" "s3://BUCKET/NAME" train generate --samples 9 --shards 3 --out s3://bucket
refuse "generate: other scheme" "gs://bucket/x|s3://BUCKET/NAME" train generate --samples 9 --shards 3 --out gs://bucket/x
refuse "generate: no region" "region" "${in_bucket[@]}" --shards 3
AWS_MAX_ATTEMPTS=2 refuse "generate: no server there" "s3://bucket/x|refused" "${in_bucket[@]}" --shards 3 "${nobody[@]}"
AWS_MAX_ATTEMPTS=2 refuse "data: no server there" "s3://bucket/x|refused" "${quick[@]}" --data s3://bucket/x --out x "${nobody[@]}"
refuse "data: bucket without a name" "s3://BUCKET/NAME" "${quick[@]}" --data s3://bucket --out x
planned=(train plan --preset lookaheadkv --prompt-tokens 64)
AWS_MAX_ATTEMPTS=2 refuse "plan: no server there" "s3://bucket/x|refused" "${planned[@]}" --model s3://bucket/x "${nobody[@]}"
HF_HUB_OFFLINE=1 HF_HOME=$given refuse "plan: model of the hub without a network" "HF_HUB_OFFLINE|org/name" "${planned[@]}" --model org/name
refuse "plan: model name that is none" "no such folder|org/name" "${planned[@]}" --model nowhere
refuse "resume without a checkpoint" "--resume needs --checkpoint" "${quick[@]}" --out x --resume
refuse "upload without a checkpoint" "--upload needs --checkpoint" "${quick[@]}" --out x --upload s3://bucket/x
train judgeq --steps 2 --batch 1 --tokens 64 --rows 2 --validate 0 --out "$given/done" --checkpoint "$given/run.state" >/dev/null 2>&1
again=(train judgeq --steps 2 --batch 1 --tokens 64 --rows 2 --validate 0)
refuse "checkpoint of an earlier run" "exists|--resume" "${again[@]}" --out x --checkpoint "$given/run.state"
refuse "checkpoint of other settings" "resume|settings" "${again[@]}" --lr 0.01 --out x --checkpoint "$given/run.state" --resume
head -c 300 "$given/run.state" >"$given/cut.state"
refuse "checkpoint cut short" "cut.state|truncated" "${again[@]}" --out x --checkpoint "$given/cut.state" --resume
refuse "export of a checkpoint cut short" "cut.state|truncated" train export "$given/cut.state" x
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY

echo "== interrupted"
stop() { expect 130 "$1" "stopped by a signal" timeout --preserve-status -s "$2" 1.5 "${@:3}"; }
mkfifo "$given/silent"
exec 9<>"$given/silent" # open, and nothing comes
expect 130 "Ctrl-C while a prompt is awaited" "stopped by a signal" timeout --preserve-status -s INT 1.5 bash -c 'exec evict run --policy full --prompt - <&9'
expect 130 "Ctrl-C while a message is awaited" "stopped by a signal" timeout --preserve-status -s INT 1.5 bash -c 'exec evict chat --policy full <&9'
exec 9>&-
rm "$given/silent"
stop "Ctrl-C in training" INT train lookahead --steps 1000000 --out x --log x.log
stop "SIGTERM in training" TERM train judgeq --steps 1000000 --out x
stop "Ctrl-C in a run of two adapters" INT train run "$root/scripts/demo_adapters.json"
expect 75 "Ctrl-C in training with a checkpoint" "stopped by a signal|--resume goes on" timeout --preserve-status -s INT 1.5 \
  train judgeq --steps 1000000 --out x --checkpoint "$given/stopped.state"
# begun stops a command as Ctrl-C does when its folder has a file, and after a minute at the latest.
begun() { # FOLDER COMMAND...
  local folder=$1 pid
  env --default-signal=INT "${@:2}" &
  pid=$!
  for _ in $(seq 300); do
    [ -z "$(ls "$folder" 2>/dev/null)" ] && kill -0 $pid 2>/dev/null || break
    sleep 0.2
  done
  kill -s INT $pid
  wait $pid
}
expect 75 "Ctrl-C in generating" "stopped by a signal|finished samples|--resume goes on" begun "$work/.stopped.jsonl.work/results" \
  train generate --samples 1000000 --out "$work/stopped.jsonl"
refuse "pairs that were begun" "--resume|--replace" train generate --samples 1000000 --out "$work/stopped.jsonl"
refuse "pairs begun with other settings" "other settings" train generate --samples 100 --out "$work/stopped.jsonl" --resume
# What was measured is written.
stop "Ctrl-C in an evaluation" INT evict eval --samples 1000000 --json-out "$work/measured.json" --plot "$work/measured.png"
tail -c 3 "$work/measured.json" | grep -q '}' && [ -s "$work/measured.png" ] && problem='' || problem="what was measured is not written whole"
report "what was measured before Ctrl-C" "$problem"

limited=(train judgeq --batch 1 --validate 0 --out x --checkpoint)
"${limited[@]}" "$given/good.state" --steps 2 --out "$given/good" >/dev/null 2>&1
refuse "checkpoint that is there already" "good.state|--resume" "${limited[@]}" "$given/good.state" --steps 2
refuse "checkpoint of another run" "good.state" "${limited[@]}" "$given/good.state" --steps 2 --rows 3 --resume
head -c 1000 "$given/good.state" >"$given/cut.state"
refuse "checkpoint cut short" "cut.state" "${limited[@]}" "$given/cut.state" --steps 2 --resume
refuse "resume without a checkpoint" "--checkpoint" train judgeq --steps 2 --resume --out x

echo "== pipes and disks"
closed() { # NAME COMMAND...: its reader is gone before it writes; SIGPIPE ends it
  expect 141 "$1" "" bash -c 'trap - PIPE; { sleep 0.1; "$@"; echo $? >"$0"; } | true; exit "$(cat "$0")"' "$work/code" "${@:2}"
}
closed "JSON of eval to a closed pipe" "${small[@]}" --json
closed "JSON of policies to a closed pipe" evict policies --json
closed "JSON of inspect to a closed pipe" evict inspect --example needle --json
closed "answer to a closed pipe" evict run --example section
full() { refuse "$1" "no space left" bash -c '"$@" >/dev/full' - "${@:2}"; }
full "JSON of eval to a full disk" "${small[@]}" --json
full "policies to a full disk" evict policies
full "inspect to a full disk" evict inspect --example needle --json
full "answer to a full disk" evict run --example needle

mkdir "$work/tiny"
if mount -t tmpfs -o size=64k tmpfs "$work/tiny" 2>/dev/null; then
  cd "$work/tiny"
  refuse "adapter on a full disk" "no space left" "${quick[@]}" --out x
  # What is finished is kept, for --resume.
  refuse "pairs on a full disk" "no space left|finished samples|--resume goes on" bash -c '"$@"; code=$?; rm -r .x.jsonl.work; exit $code' - train generate --samples 200 --out x.jsonl
  refuse "checkpoint on a full disk" "no space left" train judgeq --steps 2 --batch 1 --validate 0 --out x --checkpoint x.state
  refuse "log on a full disk" "no space left" train judgeq --steps 600 --batch 1 --tokens 64 --rows 1 --validate 0 --out x --log x.log
  refuse "plot on a full disk" "no space left" evict eval --samples 1 --task section --policy all --budget 8,16,32 --plot x.png
  refuse "JSON on a full disk" "no space left" evict eval --samples 1 --policy all --budget 8,16,24,32,40,48,56,64 --json-out x.json
else
  echo "SKIP  a full disk: mounting a small one needs root"
fi

echo "$((cases - failures)) of $cases cases passed"
[ $failures = 0 ]
