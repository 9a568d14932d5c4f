#!/usr/bin/env bash
# Writes NOTICE: every module whose code is in one of the two binaries, its version, its
# licence, and the licences' texts. Texts come from the module cache: the files LICENSE,
# COPYING and NOTICE of every linked package's folder and of the folders above it.
#
#   ./lab/notice.sh [FILE]    # out/NOTICE
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"

out=$(absolute "${1:-$root/out/NOTICE}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go mod download

# Linked packages on every platform that is built for: MODULE VERSION MODULE-FOLDER PACKAGE-FOLDER.
list() { # GOARCH TAGS
  CGO_ENABLED=1 GOOS=linux GOARCH=$1 GOFLAGS=-buildvcs=false go list -deps -tags "$2" \
    -f '{{if and .Module (not .Module.Main)}}{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}} {{.Dir}}{{end}}' ./cmd/train ./cmd/evict
}
{ list amd64 "" && list amd64 gpu && list arm64 ""; } | grep . | LC_ALL=C sort -u >"$work/packages"

# licences prints the licence files that hold for a package.
licences() { # MODULE-FOLDER PACKAGE-FOLDER
  local folder=$2
  while :; do
    find "$folder" -maxdepth 1 -type f | grep -iE '/(licen[cs]e|copying|notice)([-.][^/]*)?$' | grep -viE '\.go$|-link\.txt$' || true
    if [ -f "$folder/licenses/ftl.txt" ]; then echo "$folder/licenses/ftl.txt"; fi
    [ "$folder" != "$1" ] || break
    folder=$(dirname "$folder")
  done
}

# kinds names the licences of a text, each on a line. A text that none of these fits has to
# be read by someone who then adds it here.
kinds() { # FILE
  local text found=''
  text=$(sed 's/^> *//' "$1" | tr -s '[:space:]' ' ') # blackfriday's is a quotation
  is() { # NAME PARTS...
    local name=$1 part
    shift
    for part in "$@"; do [[ $text == *"$part"* ]] || return 0; done
    echo "$name"
    found=yes
  }
  is Apache-2.0 "Apache License" "Version 2.0"
  is MIT "Permission is hereby granted, free of charge"
  is ISC "Permission to use, copy, modify, and" "distribute this software"
  is OFL-1.1 "SIL OPEN FONT LICENSE"
  is CC-BY-4.0 "Creative Commons Attribution 4.0"
  is FTL "The FreeType Project LICENSE"
  is FTL "exactly one of the following two licenses" "The FreeType License" # freetype: not the other, the GPL
  is MPL-2.0 "Mozilla Public License"
  if [[ $text == *"Redistribution and use in source and binary forms"* ]]; then
    if [[ $text == *"Neither the name"* || $text == *"names of its contributors"* ]]; then
      is BSD-3-Clause
    else
      is BSD-2-Clause "binary forms, with or without modification"
    fi
  fi
  [ -n "$found" ] || die "${1##*/mod/}: unknown licence"
}

# One line per licence text: HASH MODULE VERSION NAME FILE, the Go toolchain's first.
{
  echo "$(sha256sum <"$(go env GOROOT)/LICENSE" | cut -d' ' -f1) the-Go-standard-library - LICENSE $(go env GOROOT)/LICENSE"
  while read -r module version top folder; do
    for file in $(licences "$top" "$folder"); do
      echo "$(sha256sum <"$file" | cut -d' ' -f1) $module $version ${file#"$top"/} $file"
    done
  done <"$work/packages"
} | awk '!seen[$0]++' >"$work/texts"
missing=$(comm -23 <(cut -d' ' -f1 "$work/packages" | LC_ALL=C sort -u) <(cut -d' ' -f2 "$work/texts" | LC_ALL=C sort -u))
[ -z "$missing" ] || die "no licence file found for: $missing"

{
  echo "Glimpse contains code of others. This file names every module that is linked into its binaries"
  echo "(linux, amd64 and arm64, with and without the build tag gpu), and has their licences."
  echo "It is written by lab/notice.sh."
  echo
  cut -d' ' -f2,3 "$work/texts" | awk '!seen[$0]++' | while read -r module version; do
    kinds=$(awk -v m="$module" -v v="$version" '$2 == m && $3 == v && tolower($4) !~ /notice/ { print $5 }' "$work/texts" |
      while read -r file; do kinds "$file"; done | awk '!seen[$0]++ { printf "%s%s", sep, $0; sep = ", " }')
    printf '%-64s %-44s %s\n' "${module//-/ }" "$version" "$kinds" | if [ "$module" = the-Go-standard-library ]; then cat; else sed "s|^${module//-/ }|$module|"; fi
  done
  for hash in $(cut -d' ' -f1 "$work/texts" | awk '!seen[$0]++'); do
    echo
    printf '%.0s=' {1..96}
    echo
    awk -v h="$hash" '$1 == h { print $2, $4 }' "$work/texts" | sed 's/the-Go-standard-library/the Go standard library/'
    echo
    file=$(awk -v h="$hash" '$1 == h { print $5; exit }' "$work/texts")
    tr -d '\r' <"$file" | sed 's/[[:space:]]*$//' | cat -s
  done
} >"$work/NOTICE"

mkdir -p "$(dirname "$out")"
cp "$work/NOTICE" "$out"
echo "$out: $(cut -d' ' -f1 "$work/packages" | sort -u | wc -l) modules"
