#!/usr/bin/env bash
# Builds the archives of a release in out/release, each tried out from an unpacked copy where
# this machine can run it:
#
#   linux-amd64, linux-arm64, darwin-arm64   static programs, for the processor alone
#   linux-amd64-cuda, linux-arm64-cuda       the same with the CUDA backend; glibc 2.28 or later
#
# An archive has bin/, man pages, completions of bash, zsh and fish, and the documents, in docs/html as a
# site. What its README says is run in it.
# SHA256SUMS has the checksums. Go is that of go.mod, C is compiled by a zig of a fixed version,
# which is fetched from PyPI into .cache/ (python3 with pip is needed), and all times are the
# commit's. --twice shows that another folder makes the same bytes.
#
#   ./scripts/release.sh                       # all of them
#   ./scripts/release.sh --only=linux-amd64    # one; may be repeated
#   ./scripts/release.sh --twice               # build everything twice and compare the bytes
#   ./scripts/release.sh --out DIR
set -euo pipefail
source "$(dirname "$0")/common.sh"

# What of the tree an archive has, where links of its documents must lead (check_readme.sh reads it here).
released=(README.md CONTRIBUTING.md CHANGELOG.md Containerfile docs lab/README.md lab/results lab/papers/README.md lab/papers/training interop scripts/examples scripts/common.sh scripts/smollm2.sh)
targets=(linux-amd64 linux-amd64-cuda linux-arm64 linux-arm64-cuda darwin-arm64)
only=() twice='' out=$root/out/release
while [ $# -gt 0 ]; do
  case $1 in
    --only=*)
      [[ " ${targets[*]} " == *" ${1#*=} "* ]] || die "--only: got '${1#*=}', want one of ${targets[*]}"
      only+=("${1#*=}")
      ;;
    --twice) twice=yes ;;
    --out)
      [ -n "${2:-}" ] || die "--out: want a folder"
      out=$(absolute "$2")
      shift
      ;;
    *) die "unknown argument '$1', want --only, --twice or --out" ;;
  esac
  shift
done
[ ${#only[@]} = 0 ] || targets=("${only[@]}")

zig=0.17.0 glibc=2.28
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
version=$(git describe --tags --always --dirty)
tar --version 2>&1 | grep GNU >/dev/null || die "want GNU tar, whose archives do not depend on the order of a folder"

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# compiler fetches zig once and makes it the C compiler of a target.
compiler() { # ARCH
  local at=$root/.cache/zig-$zig
  if [ ! -e "$at/done" ]; then
    echo "fetching zig $zig from PyPI (100 MB) into ${at#"$root"/}"
    python3 -m pip install --quiet --no-deps --only-binary=:all: --root-user-action=ignore --target "$at" "ziglang==$zig" ||
      die "zig $zig could not be fetched from PyPI"
    touch "$at/done"
  fi
  export ZIG=$at/ziglang/zig ZIG_TARGET=$1-linux-gnu.$glibc
  export ZIG_GLOBAL_CACHE_DIR=$root/.cache/zig-cache ZIG_LOCAL_CACHE_DIR=$root/.cache/zig-cache
  export CC=$work/zigcc
  # Folders of this machine's own C library, which bindings of CUDA name, are left out: a program must not depend on
  # the machine that built it. What is linked gets no symbols and no debug information: that of zig's own start files
  # names the folder of its cache, so that another folder made other bytes.
  cat >"$CC" <<'END'
#!/usr/bin/env bash
args=()
for a in "$@"; do
  case $a in
    -I/usr/* | -L/usr/* | -I/opt/* | -L/opt/*) ;;
    *) args+=("$a") ;;
  esac
done
[[ " $* " == *" -c "* ]] || args+=(-Wl,--strip-all)
exec "$ZIG" cc -target "$ZIG_TARGET" "${args[@]}"
END
  chmod +x "$CC"
}

# programs builds evict and train. -trimpath and an empty build id keep the folders of
# this machine out of them.
programs() { # TARGET FOLDER
  local os arch kind flags=(-trimpath -buildvcs=true -ldflags '-s -w -buildid=')
  IFS=- read -r os arch kind <<<"$1"
  (
    export GOOS=$os GOARCH=$arch GOFLAGS= GOAMD64=v1 GOARM64=v8.0 CGO_ENABLED=0
    if [ "$kind" = cuda ]; then
      case $arch in amd64) compiler x86_64 ;; arm64) compiler aarch64 ;; esac
      unset CGO_CFLAGS
      source scripts/gpu_env.sh
      flags+=(-tags gpu)
    fi
    go build "${flags[@]}" -o "$2/" ./cmd/evict ./cmd/train
  )
}

# pages writes what is the same for all targets, with programs of this machine.
pages() { # FOLDER
  local program
  mkdir -p "$1/share/bash-completion/completions" "$1/share/zsh/site-functions" "$1/share/fish/vendor_completions.d"
  for program in evict train; do
    "$work/native/$program" man "$1/share/man/man1"
    "$work/native/$program" completion bash >"$1/share/bash-completion/completions/$program"
    "$work/native/$program" completion zsh >"$1/share/zsh/site-functions/_$program"
    "$work/native/$program" completion fish >"$1/share/fish/vendor_completions.d/$program.fish"
  done
  git archive --format=tar HEAD "${released[@]}" | tar -x -C "$1"
  go -C lab run ./papers "$1/papers"
  lab/notice.sh "$1/NOTICE"
  GLIMPSE_VERSION=$version scripts/docs.sh --out "$1/docs/html"
}

# archive packs a folder: sorted, with the commit's time, owned by nobody.
archive() { # FOLDER NAME
  tar --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    -C "$1" -cf - "$2" | gzip -9n
}

# build makes all archives and their checksums in a folder.
build() { # FOLDER
  local target name
  mkdir -p "$1"
  rm -f "$1"/glimpse-*.tar.gz "$1/SHA256SUMS"
  for target in "${targets[@]}"; do
    name=glimpse-$version-$target
    rm -rf "$work/tree"
    mkdir -p "$work/tree/$name/bin"
    cp -r "$work/common/." "$work/tree/$name/"
    programs "$target" "$work/tree/$name/bin"
    archive "$work/tree" "$name" >"$1/$name.tar.gz"
    printf '%s  %s\n' "$(du -h --apparent-size "$1/$name.tar.gz" | cut -f1)" "$name.tar.gz"
  done
  (cd "$1" && sha256sum glimpse-*.tar.gz >SHA256SUMS)
}

# try runs an unpacked archive as its user would, in a folder where nothing else is.
try() { # ARCHIVE
  local name here=$work/try said
  name=$(basename "$1" .tar.gz)
  rm -rf "$here"
  mkdir -p "$here"
  tar -xzf "$1" -C "$here"
  (
    cd "$here/$name"
    said=$(env -i HOME="$here" PATH=/usr/bin:/bin ./bin/evict --version)
    [[ $said == *"$(git -C "$root" rev-parse --short=12 HEAD)"* ]] || die "$name: --version says '$said', want the commit"
    run() { env -i HOME="$here" PATH="$PWD/bin:/usr/bin:/bin" "$@" >"$here/output" 2>&1 || { cat "$here/output" >&2; die "$name: $* failed"; }; }
    run evict run --example needle --policy lookaheadkv --budget 64
    grep -q 'the answer is right' "$here/output" || { cat "$here/output" >&2; die "$name: the example's answer is not right"; }
    run evict doctor
    run train lookahead --steps 2 --tokens 128 --out out/tried
    run evict run --example section --tokens 128 --adapter out/tried --budget 64
    for page in evict evict-run train train-lookahead; do
      [ -s "share/man/man1/$page.1" ] || die "$name: no man page of $page"
    done
    for program in evict train; do
      bash -n "share/bash-completion/completions/$program"
      [ -s "share/zsh/site-functions/_$program" ] && [ -s "share/fish/vendor_completions.d/$program.fish" ] || die "$name: completions of $program are missing"
    done
    if strings -n 8 bin/evict 2>/dev/null | grep -qF "$root/"; then die "$name: bin/evict names the folder $root, where it was built"; fi
  )
  scripts/check_readme.sh --archive "$here/$name" || die "$name: its documents do not fit it"
  echo "runs: $name"
}

go build -o "$work/native/" ./cmd/evict ./cmd/train
pages "$work/common"
build "$out"
host=$(go env GOHOSTOS)-$(go env GOHOSTARCH)
for target in "${targets[@]}"; do
  case $target in "$host" | "$host-cuda") try "$out/glimpse-$version-$target.tar.gz" ;; esac
done
if [ -n "$twice" ]; then
  # In another folder, without what the first build has compiled.
  git clone -q --shared "$root" "$work/again"
  mkdir -p "$work/again/.cache"
  [ ! -d ".cache/zig-$zig" ] || ln -s "$root/.cache/zig-$zig" "$work/again/.cache/"
  GOCACHE=$work/gocache "$work/again/scripts/release.sh" "${targets[@]/#/--only=}" --out "$work/second" || die "the second build failed"
  diff "$out/SHA256SUMS" "$work/second/SHA256SUMS" || die "two builds of $version differ"
  echo "the second build has the same bytes"
fi
