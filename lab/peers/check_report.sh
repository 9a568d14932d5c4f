#!/usr/bin/env bash
# Opens a report in a headless Chromium: no errors, no requests, charts with marks, the right
# numbers, tabs, tips and shades at work, hostile text harmless, light and dark, wide and
# narrow. GLIMPSE_CHROMIUM names the browser; without it one that is installed is taken, and
# where there is none and this runs as root, Debian's (a download of 65 MB, about 30 seconds,
# which is why CI does not run this).
#
#   ./lab/peers/check_report.sh
#   ./lab/peers/check_report.sh --shots REPORT.html DIR   # pictures of a page, to look at
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"

test=TestPageInABrowser
case ${1:-} in
  '') ;;
  --shots)
    [ $# = 3 ] || die "want --shots REPORT.html DIR"
    GLIMPSE_PAGE=$(absolute "$2") GLIMPSE_SHOTS=$(absolute "$3")
    [ -f "$GLIMPSE_PAGE" ] || die "$2 is no file"
    mkdir -p "$GLIMPSE_SHOTS"
    export GLIMPSE_PAGE GLIMPSE_SHOTS
    test=TestScreenshots
    ;;
  *) die "unknown argument $1" ;;
esac

need_chromium
go test -count=1 -run "^$test\$" -v ./evaluation/report
