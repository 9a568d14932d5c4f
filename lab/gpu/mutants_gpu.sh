#!/usr/bin/env bash
# Plants one bug at a time in a copy of the CUDA kernels and expects the tests on the
# host driver to see each of them, with warps and lanes in random order. Those of
# kernels/cuda/SOURCE lie in lab/gpu/mutants/SOURCE.mutants. Called by "scripts/test_gpu.sh --mutants", which
# sets the environment; an argument is a regular expression of the sources' names.
#
# Whether a bug is seen follows from the kernels, the driver, the tests and the scripts that run
# them. When all are, the digest of these goes into lab/gpu/mutants.seen, which is to be
# committed; with --changed nothing runs while it is that of the sources at hand.
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

# digest covers every file of the kernels, of the driver, of the packages that the two test
# programs are made of, and the scripts.
digest() {
  {
    printf "%s\n" "$root"/scripts/{test_gpu,gpu_env,common}.sh "$root"/lab/gpu/mutants_gpu.sh "$root"/go.{mod,sum}
    find "$root/kernels/cuda" "$root/lab/gpu/mutants" -type f ! -path '*/build/*'
    go list -tags gpu -deps -test -f '{{if and .Module .Module.Main}}{{.Dir}}{{end}}' ./kernels/cuda ./kernels |
      xargs -I{} find {} -maxdepth 1 -type f
  } | sed "s|^$root/||" | LC_ALL=C sort -u | xargs sha256sum | sha256sum | cut -d' ' -f1
}
seen_file=lab/gpu/mutants.seen
now=$(digest) # before the run, in which somebody may edit
if [ "${1:-}" = --changed ]; then
  shift
  if [ "$now" = "$(cat "$seen_file" 2>/dev/null)" ]; then
    echo "every planted bug has been seen in these kernels by these tests ($seen_file)"
    exit
  fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for package in kernels/cuda kernels; do # the device's own tests, and those of every backend
  go test -tags gpu -c -ldflags='-s -w' -o "$work/${package##*/}.test" "./$package"
  "$work/${package##*/}.test" -test.list . >"$work/${package##*/}.list"
done
# What every copy starts from. A bug is seen in a run of a fraction of a second: compiling
# without optimisation and linking without debug information is what saves time. Reductions run
# as the shuffles that a device has.
mkdir -p "$work/base/host" "$work/base/build"
cp -p kernels/cuda/{*.cu,*.h,Makefile} "$work/base"
cp -p kernels/cuda/host/* "$work/base/host"
cp -p kernels/cuda/build/*.d "$work/base/build"
for object in kernels/cuda/build/*.o; do
  strip -g -p -o "$work/base/build/${object##*/}" "$object"
done
unoptimised=(HOSTFLAGS="-O0 -march=x86-64-v3 -ffp-contract=off -DHC_SHUFFLES")
if command -v ld.gold >/dev/null; then unoptimised+=(LINK=-fuse-ld=gold); fi

run() { # DRIVER TEST LOG: in the folder of the tests, as go test would
  local package
  for package in kernels/cuda kernels none; do
    ! grep -qE "^(${2%%/*})" "$work/${package##*/}.list" 2>/dev/null || break
  done
  [ $package != none ] || { echo "no test is called $2" >"$3"; return 0; }
  (cd $package && GLIMPSE_CUDA_DRIVER=$1 GLIMPSE_CUBLASLT=$1 GOMAXPROCS=1 timeout 120 "$work/${package##*/}.test" -test.failfast -test.run "$2" >"$3" 2>&1)
}
# Without this, a broken set-up would look like every bug being seen: sources that are compiled
# and linked as those with a bug, but have none.
cp -al "$work/base" "$work/sound"
rm "$work"/sound/build/{elements,rows,few_rows}.cu.o
make -s -C "$work/sound" "${unoptimised[@]}" host
run "$work/sound/build/libhostcuda.so" 'TestBackendsConform/cuda/(Norm|Linear|Gather)$' "$work/log" || { cat "$work/log"; die "the tests fail without a planted bug"; }

plant() { # FILE TEST PROGRAM WHAT: prints the verdict
  local file=$1 test=$2 program=$3 what=$4 dir source
  dir=$(mktemp -d "$work/XXXXXX")
  cp -al "$work/base" "$dir/cuda"
  sed -i "$program" "$dir/cuda/$file"
  case $file in
    *.h) source=${test%%: *} test=${test#*: } ;;
    *) source=$file ;;
  esac
  rm "$dir/cuda/build/$(basename "${source%.cpp}").o" # it is a link to what others have, too
  if cmp -s "$dir/cuda/$file" "kernels/cuda/$file"; then
    echo "NO CHANGE  $what"
  elif ! make -s -C "$dir/cuda" -o "$file" "${unoptimised[@]}" host >"$dir/log" 2>&1; then
    cat "$dir/log"
    echo "NO BUILD   $what"
  else
    [ "${test#Test}" != "$test" ] || test="TestBackendsConform/cuda/($test)\$"
    # Neither the forward nor the reverse order of warps and lanes shows every race; a random one does.
    if HOSTCUDA_ORDER=random:1 run "$dir/cuda/build/libhostcuda.so" "$test" "$dir/log"; then
      echo "SURVIVED   $what"
    else
      echo "seen       $what"
    fi
  fi
  rm -rf "$dir"
}

plant_all() { # reads FILE|TEST|PROGRAM|WHAT
  local file test program what
  while IFS='|' read -r file test program what; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    plant "$file" "$test" "$program" "$what" &
  done
  wait
}

(cd lab/gpu/mutants && find . -name '*.mutants' | sed 's|^\./||' | sort | grep -E -- "${1:-.}" | while read -r list; do
  grep -v '^#' "$list" | sed "s#^#${list%.mutants}|#"
done) >"$work/bugs" || true
plant_all <"$work/bugs" | tee "$work/verdicts"
# No bugs at all would look like every bug being seen, and so would one without a verdict.
[ -s "$work/bugs" ] || die "no bugs for '${1:-.}'"
seen=$(grep -c '^seen ' "$work/verdicts") || true
[ "$seen" = "$(wc -l <"$work/bugs")" ] || die "$seen of $(wc -l <"$work/bugs") bugs are seen"
[ -n "${1:-}" ] || echo "$now" >"$seen_file"
