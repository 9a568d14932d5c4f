#!/usr/bin/env bash
# Holds the page of evict serve against axe-core (Deque Systems; MPL-2.0), which finds what keeps people from using a page: at three
# widths, light and dark, with an answer, what was kept, and the drawer open. npm fetches it; CI does not run this.
#
#   ./lab/peers/check_axe.sh
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

need_chromium
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" axe-core@4.14.1 >/dev/null || die "npm could not fetch axe-core"
tar -xzf "$work"/axe-core-*.tgz -C "$work" package/axe.min.js
GLIMPSE_AXE=$work/package/axe.min.js go test -count=1 -run '^TestServePageInABrowser$' ./cmd/evict
