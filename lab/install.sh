#!/usr/bin/env bash
# Tries every line of docs/running.md, "Installing": go install from a fresh clone, a release archive, the container. Each must
# end in an evict that finds the built-in model's needle. One line a way; 0 only if all of them do.
#
#   ./lab/install.sh --archive out/release/glimpse-VERSION-linux-amd64.tar.gz [--base IMAGE] [--only clone|archive|container]
#
# --base  what the container stands on (that of Containerfile). scratch fetches nothing, and the programs of linux-amd64 need nothing
# The container is built by docker where its daemon runs, else by podman, else by buildah (Debian's, as root, in a chroot).
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"

archive='' base='' only=''
while [ $# -gt 0 ]; do
  case $1 in
    --archive | --base | --only) declare "${1#--}=${2:?$1: want a value}"; shift ;;
    -h | --help) sed -n '2,/^set/{/^# \{0,1\}/s///p}' "$root/lab/install.sh"; exit ;;
    *) die "unknown argument $1" ;;
  esac
  shift
done
archive=$(absolute "${archive:?--archive: want a file of scripts/release.sh}")
[ -f "$archive" ] || die "$archive: no such archive"
name=$(basename "$archive" .tar.gz)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

line() { # BEGINNING: the line of docs/running.md that begins so, for this archive
  local found
  found=$(sed -n '/^## Installing/,/^## /p' docs/running.md | grep -F "$1" | head -n 1)
  [ -n "$found" ] || die "docs/running.md, Installing: no line begins with $1"
  sed -E "s/ +# .*//; s/glimpse-VERSION-linux-amd64/$name/g; s,ADDRESS,$root,; s,out/release,${archive%/*},g" <<<"$found"
}

# docker is what there is of docker, podman and buildah, which has no "run" of an image.
docker() {
  local container status=0
  if command docker info >/dev/null 2>&1; then
    command docker "$@"
  elif command -v podman >/dev/null; then
    podman "$@"
  elif [ "$1" = build ]; then
    buildah --storage-driver vfs bud --isolation chroot "${@:2}"
  else # run --rm IMAGE COMMAND...
    container=$(buildah --storage-driver vfs from --pull-never "$3")
    buildah --storage-driver vfs run --isolation chroot "$container" -- "${@:4}" || status=$?
    buildah --storage-driver vfs rm "$container" >/dev/null
    return $status
  fi
}
by=docker
command docker info >/dev/null 2>&1 || { command -v podman >/dev/null && by=podman; } || by=buildah

failed=0
try() { # WHAT COMMAND...
  local what=$1 start=$SECONDS status
  shift
  set +e # in a condition the commands would go on after one that failed
  (set -e; "$@") >"$work/output" 2>&1
  status=$?
  set -e
  if [ $status = 0 ] && grep -q 'the answer is right' "$work/output"; then
    printf 'ok      %-40s %s\n' "$what" "$(duration $((SECONDS - start)))"
  else
    failed=1
    printf 'FAILED  %-40s %s\n' "$what" "$(duration $((SECONDS - start)))"
    tail -n 12 "$work/output" | cut -c1-300 | sed 's/^/        /'
  fi
}
needle() { "$@" run --example needle --policy lookaheadkv --budget 64; }
of_clone() {
  cd "$work"
  export GOBIN=$work/bin
  eval "$1"
  needle "$work/bin/evict"
}
of_archive() {
  mkdir "$work/unpacked"
  cd "$work/unpacked"
  cp "$archive" .
  eval "$1"
  needle "./$name/bin/evict"
}
of_container() {
  eval "$1"
  docker run --rm glimpse evict run --example needle --policy lookaheadkv --budget 64
}

[ "${only:-clone}" != clone ] || try "go install, from a fresh clone" of_clone "$(line 'git clone ')"
[ "${only:-archive}" != archive ] || try "the release archive" of_archive "$(line 'tar -xzf ')"
command=$(line 'docker build ')
[ -z "$base" ] || command=${command/ -t / --build-arg "BASE=$base" -t }
[ "${only:-container}" != container ] || try "the container, by $by${base:+, on $base}" of_container "${command%%&& docker run*}"
exit $failed
