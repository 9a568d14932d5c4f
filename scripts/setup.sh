#!/usr/bin/env bash
# Makes a fresh Debian or Ubuntu machine ready to build and test: Go and the modules
# of go.mod. Nothing else is needed: no C compiler, no Python, no download of
# weights. Says nothing when there is nothing to do.
set -euo pipefail
source "$(dirname "$0")/common.sh"

wanted=$(awk '$1 == "go" { print $2 }' go.mod)

# Go 1.21 was the first that fetches the version which go.mod asks for by itself.
oldest=1.21

# older tells whether version $1 comes before $2.
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

install_go() {
  local help="install Go $wanted or later from https://go.dev/doc/install, then run this again"
  command -v apt-get >/dev/null || die "Go is missing and there is no apt-get to install it with; $help"
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || die "Go is missing and installing it needs root; run 'sudo apt-get install golang-go', or $help"
    as_root=(sudo)
  fi
  echo "setup: installing Go"
  "${as_root[@]}" apt-get update -q || die "apt-get update failed; $help"
  local offered
  offered=$(apt-cache policy golang-go | awk '$1 == "Candidate:" { sub(/^[0-9]+:/, "", $2); sub(/[~-].*/, "", $2); print $2 }')
  if [ -z "$offered" ] || [ "$offered" = "(none)" ] || older "$offered" "$oldest"; then
    die "apt-get offers Go '${offered:-none}', want $oldest or later; $help"
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends golang-go ca-certificates ||
    die "apt-get install failed; $help"
}

command -v go >/dev/null || install_go

# Inside the module, go answers as the version that go.mod asks for, fetched if need be.
found=$(go env GOVERSION) ||
  die "Go cannot provide version $wanted, which go.mod asks for; install it from https://go.dev/doc/install"
if older "${found#go}" "$wanted"; then
  die "got $found, want go$wanted or later; install it from https://go.dev/doc/install"
fi

# Quiet where all modules are here already.
go mod download || die "the modules of go.mod could not be downloaded; see the error above"
