#!/usr/bin/env bash
# Runs the tests of the CPU kernels for arm64 on a machine of another kind, under
# qemu's user-mode emulation (Debian: apt-get install qemu-user-static), with NEON and
# with the portable code. Arguments go to the test programs:
#
#   ./lab/test_arm64.sh
#   ./lab/test_arm64.sh -test.run Gemm -test.v
set -euo pipefail
source "$(dirname "$0")/../scripts/common.sh"

qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
  die "qemu-aarch64 is missing; on Debian: apt-get install qemu-user-static"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

GOARCH=arm64 go vet ./...
for package in internal/simd internal/parallel kernels; do
  test=$folder/${package//\//_}.test
  GOARCH=arm64 go test -c -o "$test" "./$package"
  # TestEnvironment starts itself again, which needs a kernel that hands arm64 programs
  # to qemu; its subject is what the second run below sets.
  (cd "$package" && "$qemu" "$test" -test.short -test.skip '^TestEnvironment$' "$@")
  if [ "$package" = kernels ]; then
    (cd "$package" && GLIMPSE_SIMD=portable "$qemu" "$test" -test.short "$@")
  fi
done
