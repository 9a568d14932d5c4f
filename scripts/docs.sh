#!/usr/bin/env bash
# Builds the documents as a site in out/docs, with Sphinx of fixed versions from PyPI in
# .cache/ (python3 3.11 or later with venv is needed). Its search works from the folder, without a network
# or a server. Warnings are errors: broken links, headings that are missing.
#
#   ./scripts/docs.sh [--out DIR]
set -euo pipefail
source "$(dirname "$0")/common.sh"

out=$root/out/docs
case ${1:-} in
  '') ;;
  --out) out=$(absolute "${2:?--out: want a folder}") ;;
  *) die "unknown argument '$1', want --out" ;;
esac
venv=$root/.cache/docs-$(sha256sum docs/requirements.txt | cut -c1-12)
if [ ! -e "$venv/done" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r docs/requirements.txt || die "docs/requirements.txt could not be installed from PyPI"
  touch "$venv/done"
fi
mkdir -p "$root/out"
work=$(mktemp -d "$root/out/.docs.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# Without what differs from one build to the next.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} GLIMPSE_VERSION=${GLIMPSE_VERSION:-$(git describe --tags --always)}
"$venv/bin/sphinx-build" --quiet --nitpicky --fail-on-warning --keep-going -b html -d "$work/doctrees" docs "$work/html"
cp "$work/html/README.html" "$work/html/index.html"
rm -f "$work/html/.buildinfo" "$work/html/objects.inv"
mkdir -p "$(dirname "$out")"
rm -rf "$out"
mv "$work/html" "$out"
echo "wrote $out/index.html"
