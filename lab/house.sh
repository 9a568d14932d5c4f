#!/usr/bin/env bash
# Counts the house, for before and after a change: lines, words, names, branches (lab/house), packages that the programs link,
# their bytes, and a clone's size.
#
#   ./lab/house.sh [FOLDER]   # another checkout
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"

folder=$(absolute "${1:-$root}")
go -C lab run ./house "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in evict train; do
  (cd "$folder" && go build -trimpath -ldflags '-s -w' -o "$work/$program" "./cmd/$program")
  printf '%-25s %7d packages, %d of ours; %d bytes stripped\n' "cmd/$program" "$(cd "$folder" && go list -deps "./cmd/$program" | wc -l)" \
    "$(cd "$folder" && go list -deps "./cmd/$program" | grep -c '^glimpse/')" "$(stat -c %s "$work/$program")"
done
git clone -q --no-local --bare "$folder" "$work/clone"
printf '%-25s %7d KiB packed\n' "a clone" "$(du -sk "$work/clone/objects" | cut -f1)"
