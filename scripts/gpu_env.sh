# Sourced: what "go build -tags gpu" needs beside a C compiler, which is where the
# declarations of the CUDA driver lie, with Go's own flags: what has no declarations is not
# compiled again. No toolkit and no driver are needed to build.
[ -n "${root:-}" ] || root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export CGO_ENABLED=1 # cgo is off by default where no C compiler is found
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g} -I$root/kernels/cudadriver/include"

# compilers installs those of C and C++ where they are missing.
compilers() {
  if command -v g++ >/dev/null && command -v make >/dev/null; then return; fi
  command -v apt-get >/dev/null || die "g++ and make are missing and there is no apt-get to install them with"
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends g++ make libc6-dev
}
