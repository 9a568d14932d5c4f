# Sourced: what "go build -tags gpu" needs beside a C compiler, which is where the
# declarations of the CUDA driver lie, with Go's own flags: what has no declarations is not
# compiled again. No toolkit and no driver are needed to build.
[ -n "${root:-}" ] || root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export CGO_ENABLED=1 # cgo is off by default where no C compiler is found
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g} -I$root/kernels/cudadriver/include"
