#!/usr/bin/env bash
# Makes a fresh Debian or Ubuntu machine ready to build and test: Go and the modules
# of go.mod. Nothing else is needed: no C compiler, no Python, no download of
# weights. Says nothing when there is nothing to do.
set -euo pipefail
source "$(dirname "$0")/common.sh"

wanted=$(awk '$1 == "go" { print $2 }' go.mod)

install_go() {
  local help="install Go $wanted or later from https://go.dev/doc/install, then run this again"
  command -v apt-get >/dev/null || die "Go is missing and there is no apt-get to install it with; $help"
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || die "Go is missing and installing it needs root; run 'sudo apt-get install golang-go', or $help"
    as_root=(sudo)
  fi
  echo "setup: installing Go (apt-get, about 60 MB)" >&2
  "${as_root[@]}" apt-get update -q || die "apt-get update failed; $help"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends golang-go ca-certificates ||
    die "apt-get install failed; $help"
}

# fetch_go lets an older Go fetch the wanted one as it fetches modules, into the folder that find_go looks at. Archives of
# modules have no modes: what lies in folders of programs is made one.
fetch_go() {
  local module version=$wanted work
  [[ $version == *.*.* ]] || version=$version.0
  module=golang.org/toolchain@v0.0.1-go$version.$(cd / && go env GOOS)-$(cd / && go env GOARCH)
  echo "setup: $(cd / && go version) fetches Go $version (70 MB) into $tools" >&2
  mkdir -p "$tools"
  work=$(mktemp -d "$tools/.go.XXXXXX")
  (cd "$work" && GOFLAGS=-mod=mod GOMODCACHE=$work/modules go mod download "$module") || die "$module could not be fetched; install Go $wanted from https://go.dev/doc/install"
  chmod -R u+w "$work/modules"
  find "$work/modules/golang.org" -type f -path '*/bin/*' -exec chmod +x {} +
  find "$work/modules/golang.org" -type f -path '*/pkg/tool/*' -exec chmod +x {} +
  mv "$work/modules/golang.org/toolchain@"* "$tools/go"
  rm -rf "$work"
}

command -v go >/dev/null || install_go
if old_go; then # as Debian 12's
  fetch_go
  find_go
fi

# Inside the module, go answers as the version that go.mod asks for, fetched if need be.
found=$(go env GOVERSION) ||
  die "Go cannot provide version $wanted, which go.mod asks for; install it from https://go.dev/doc/install"
if older "${found#go}" "$wanted"; then
  die "got $found, want go$wanted or later; install it from https://go.dev/doc/install"
fi

# Quiet where all modules are here already.
go mod download -x 2>&1 | counted "modules of go.mod fetched (230 MB in all)" >&2 || die "the modules of go.mod could not be downloaded; see the error above"
