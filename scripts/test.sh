#!/usr/bin/env bash
# Sets up what is missing and runs all tests. Arguments go to "go test":
#
#   ./scripts/test.sh
#   ./scripts/test.sh -run Eviction -v
#
# GLIMPSE_DATA may name a folder with real tokenizers and chat templates; the tests
# that need them say that they were left out where it is not set.
set -euo pipefail
source "$(dirname "$0")/common.sh"

scripts/setup.sh
find_go
if [ -n "${GLIMPSE_DATA:-}" ]; then
  GLIMPSE_DATA=$(absolute "$GLIMPSE_DATA")
  [ -d "$GLIMPSE_DATA" ] || die "GLIMPSE_DATA: $GLIMPSE_DATA is not a folder"
  export GLIMPSE_DATA
fi
# Most tests hold a few megabytes, which would be collected again and again.
export GOGC=${GOGC:-400}
# Forecasts of memory collect garbage thousands of times, in small heaps: a runtime that stops for it takes a quarter of
# the processors' time of one that sweeps beside them.
export GODEBUG=gcstoptheworld=2${GODEBUG:+,$GODEBUG}
# What vet says is a check of its own: make vet.
go test -vet=off "${tags[@]}" "$@" ./...
