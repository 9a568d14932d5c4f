#!/usr/bin/env bash
# Plants one bug at a time in a copy of the CUDA kernels and expects the tests on the
# host driver to see each of them, in one scheduling order or the other. The bugs lie beside
# the sources, kernels/cuda/SOURCE.mutants. Called by "scripts/test_gpu.sh --mutants", which
# sets the environment; an argument is a regular expression of the sources' names.
set -euo pipefail
source "$(dirname "$0")/common.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go test -tags gpu -c -o "$work/cuda.test" ./kernels/cuda
go test -tags gpu -c -o "$work/kernels.test" ./kernels

# folder is where the tests of an operation are: the device's own, or those of every backend.
folder() { # OPERATION
  local package
  for package in kernels/cuda kernels; do
    [ -z "$("$work/${package##*/}.test" -test.list "^(${1%%/*})")" ] || { echo "$package"; return; }
  done
  return 1
}

run() { # DRIVER OPERATION LOG: in the folder of the tests, as go test would
  local package
  package=$(folder "$2") || { echo "no test is called $2" >"$3"; return 0; }
  (cd "$package" && GLIMPSE_CUDA_DRIVER=$1 GLIMPSE_CUBLASLT=$1 GOMAXPROCS=1 timeout 120 "$work/${package##*/}.test" -test.failfast -test.run "$2" >"$3" 2>&1)
}
# Without this, a broken set-up would look like every bug being seen.
run "$root/kernels/cuda/build/libhostcuda.so" 'TestBackendsConform/cuda/(RMSNorm|Linear|Gather)$' "$work/log" || { cat "$work/log"; die "the tests fail without a planted bug"; }

plant() { # FILE OPERATION PROGRAM WHAT: prints the verdict
  local file=$1 operation=$2 program=$3 what=$4 order dir
  dir=$(mktemp -d "$work/XXXXXX")
  cp -a kernels/cuda "$dir/cuda"
  sed -i "$program" "$dir/cuda/$file"
  if cmp -s "$dir/cuda/$file" "kernels/cuda/$file"; then
    echo "NO CHANGE  $what"
  elif ! make -s -C "$dir/cuda" HOSTFLAGS="-O1 -march=x86-64-v3 -ffp-contract=off" host >"$dir/log" 2>&1; then
    cat "$dir/log"
    echo "NO BUILD   $what"
  else
    [ "${operation#Test}" != "$operation" ] || operation="TestBackendsConform/cuda/($operation)\$"
    for order in forward reverse; do
      HOSTCUDA_ORDER=$order run "$dir/cuda/build/libhostcuda.so" "$operation" "$dir/log" || { echo "seen       $what"; break; }
      [ $order = forward ] || echo "SURVIVED   $what"
    done
  fi
  rm -rf "$dir"
}

plant_all() { # reads FILE|OPERATION|PROGRAM|WHAT
  local file operation program what
  while IFS='|' read -r file operation program what; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    plant "$file" "$operation" "$program" "$what" &
  done
  wait
}

(cd kernels/cuda && find . -name '*.mutants' | sed 's|^\./||' | sort | grep -E -- "${1:-.}" | while read -r list; do
  grep -v '^#' "$list" | sed "s#^#${list%.mutants}|#"
done) | plant_all | tee "$work/verdicts"
# No bugs at all would look like every bug being seen.
[ -s "$work/verdicts" ] || die "no bugs for '${1:-.}'"
! grep -qv '^seen ' "$work/verdicts"
