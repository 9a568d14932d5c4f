#!/usr/bin/env bash
# Compares a model in a GGUF file with what llama.cpp makes of the same file: the token ids of
# texts, conversations through the chat template, greedy answers to 20 prompts. CI does not run it,
# for want of llama.cpp and of a real model.
#
#   ./lab/peers/check_llama_cpp.sh LLAMA_SERVER MODEL.gguf STRINGS.json
#
# LLAMA_SERVER is llama.cpp's llama-server, STRINGS.json holds {"strings": [texts]}.
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"
[ $# = 3 ] || die "got $# arguments, want LLAMA_SERVER MODEL.gguf STRINGS.json"
go -C lab run ./peers/llamacpppeer --server "$(absolute "$1")" --model "$(absolute "$2")" --strings "$(absolute "$3")"
