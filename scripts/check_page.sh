#!/usr/bin/env bash
# Uses the page of evict serve in a headless Chromium: a key, streamed answers, what was kept, the budget, the
# full cache beside it, stop and clear by keys alone; no errors, no requests to others, hostile text harmless, light and
# dark, wide and narrow; and pages of other origins. The Chromium is found as for lab/peers/check_report.sh; CI does not run this.
#
#   ./scripts/check_page.sh
#   ./scripts/check_page.sh --shots DIR [--model MODEL --message TEXT]   # keeps pictures, to look at
set -euo pipefail
source "$(dirname "$0")/common.sh"

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || die "$1 wants a value"
  case $1 in
    --shots)
      GLIMPSE_SHOTS=$(absolute "$2")
      mkdir -p "$GLIMPSE_SHOTS"
      export GLIMPSE_SHOTS
      ;;
    --model) GLIMPSE_SHOTS_MODEL=$(absolute "$2") && export GLIMPSE_SHOTS_MODEL ;;
    --message) export GLIMPSE_SHOTS_MESSAGE=$2 ;;
    *) die "unknown argument $1" ;;
  esac
  shift 2
done

need_chromium
go test -vet=off "${tags[@]}" -count=1 -run 'InABrowser$|^TestServePageSendsWhatWasChosen$' -v ./cmd/evict
