#!/usr/bin/env bash
# The C compiler of releases: zig (which holds clang and the C libraries of other systems) for the
# target in ZIG_TARGET. Folders of this machine's own C library, which bindings of CUDA name, are
# left out: a program must not depend on the machine that built it.
set -euo pipefail
args=()
for a in "$@"; do
  case $a in
    -I/usr/* | -L/usr/* | -I/opt/* | -L/opt/*) ;;
    *) args+=("$a") ;;
  esac
done
# What is linked gets no symbols and no debug information: that of zig's own start files names
# the folder of its cache, so that another folder made other bytes.
[[ " $* " == *" -c "* ]] || args+=(-Wl,--strip-all)
exec "$ZIG" cc -target "$ZIG_TARGET" "${args[@]}"
