#!/usr/bin/env bash
# Measures the CUDA backend on this machine's GPU with random weights in the shape of
# Llama 3.1 8B and writes the section "Measured" of lab/results/gpu.md: the kernels' tests first,
# each in a process of its own, then ceilings, operations by themselves, prefill, time to first token, decoding,
# training, batches, and the same prefill and training step in PyTorch, where it is
# installed. A part that fails does not keep the others from running; results of a driver
# on which tests fail say that they are unverified.
#
#   ./lab/bench/bench_gpu.sh                      # everything; "make bench-gpu" builds first
#   ./lab/bench/bench_gpu.sh tests ceilings       # parts, each of less than 8 minutes
#   ./lab/bench/bench_gpu.sh render               # the document, from the results so far
#   ./lab/bench/bench_gpu.sh --build              # only the binaries, less than 40 MiB together;
#                                               # the last line names what to carry along
#   ./lab/bench/bench_gpu.sh --unpack             # only unpacks them
#   ./lab/bench/bench_gpu.sh --list
#
#   --binaries DIR   what --build makes and everything else runs      (bin/bench-gpu)
#   --out DIR        where each part writes its result, PART.json     (out/bench-gpu)
#   --doc FILE       document that "render" changes                   (lab/results/gpu.md)
#   --tiny           a tiny model, to try the script itself, also on the host driver of
#                    scripts/test_gpu.sh; the document is then one of its own in --out
#
# Other options (--device, --repeats, --memory, --cache-dtype) go to the program that
# measures. The folder of the binaries can be copied, with scripts/, to a machine that has
# neither Go nor a network.
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

binaries=$root/bin/bench-gpu out=$root/out/bench-gpu doc='' build='' list='' unpacks='' tiny=()
options=() parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --binaries | --out | --doc)
      [ $# -gt 1 ] || die "$1: value missing"
      declare "${1#--}=$(absolute "$2")"
      shift 2
      ;;
    --device | --repeats | --memory | --cache-dtype | --limit)
      [ $# -gt 1 ] || die "$1: value missing"
      options+=("$1" "$2")
      shift 2
      ;;
    --tiny) tiny=(--tiny) && shift ;;
    --build) build=yes && shift ;;
    --list) list=yes && shift ;;
    --unpack) unpacks=yes && shift ;;
    --*) die "got '$1', want one of the options that the head of this file lists" ;;
    *) parts+=("$1") && shift ;;
  esac
done

if [ -n "$build" ]; then
  source scripts/gpu_env.sh
  rm -rf "$binaries" && mkdir -p "$binaries"
  go build -ldflags "-s -w" -tags gpu -o "$binaries/" ./cmd/evict
  go -C lab build -ldflags "-s -w" -tags gpu -o "$binaries/" ./bench/gpubench
  for package in kernels kernels/cuda model eviction training; do
    go test -c -ldflags '-s -w' -tags gpu -o "$binaries/$(basename "$package").test" "./$package"
  done
  # All share most of their code and the fat binaries: in one archive these are there once.
  (cd "$binaries" && tar -cf - gpubench evict -- *.test) | xz -T1 --lzma2=preset=6,dict=128MiB >"$binaries/binaries.tar.xz"
  rm "$binaries"/{gpubench,evict,*.test}
  size=$(stat -c %s "$binaries/binaries.tar.xz")
  [ "$size" -lt $((40 << 20)) ] || die "the binaries have $size bytes together, want less than 40 MiB"
  echo "$binaries: $((size >> 20)) MiB"
  echo "carry: ${binaries#"$root"/}"
  exit
fi

# unpack makes the binaries of their archive, where xz is missing with Python.
unpack() {
  [ -e "$binaries/binaries.tar.xz" ] && [ "$binaries/binaries.tar.xz" -nt "$binaries/gpubench" ] || return 0
  if command -v xz >/dev/null; then
    xz -dc "$binaries/binaries.tar.xz" | tar -C "$binaries" -xmf -
  else
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$binaries/binaries.tar.xz" "$binaries"
  fi
  touch "$binaries/gpubench"
}
unpack
[ -z "$unpacks" ] || exit 0
bench=$binaries/gpubench
[ -x "$bench" ] || die "$bench is missing: \"make bench-gpu-binaries\" builds it"
all=$("$bench" parts)
if [ -n "$list" ]; then
  printf '%s\n' $all pytorch render
  exit
fi
[ ${#parts[@]} -gt 0 ] || parts=($all pytorch render)
for part in "${parts[@]}"; do
  case " $(echo $all) pytorch render " in
    *" $part "*) ;;
    *) die "part: got '$part', want of $(echo $all) pytorch render" ;;
  esac
done
if [ -z "$doc" ]; then
  doc=$root/lab/results/gpu.md
  [ ${#tiny[@]} = 0 ] || doc=$out/gpu.md
fi
mkdir -p "$out"

failed=''
for part in "${parts[@]}"; do
  start=$SECONDS
  echo "=== $part"
  case $part in
    pytorch) timeout 480 python3 lab/bench/bench_gpu_pytorch.py --out "$out" "${tiny[@]}" || failed+=" $part" ;;
    render)
      "$bench" render --results "$out" --doc "$doc" --command "make bench-gpu"
      echo "written: $doc"
      ;;
    *)
      if ! timeout 480 "$bench" "$part" --out "$out" --binaries "$binaries" --each-test lab/gpu/each_test.sh "${tiny[@]}" "${options[@]}"; then
        failed+=" $part" # of tests: what follows says that it is unverified
      fi
      ;;
  esac
  echo "    $part: $(duration $((SECONDS - start)))"
done
[ -z "$failed" ] || die "failed:$failed"
