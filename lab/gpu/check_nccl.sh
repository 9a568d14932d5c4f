#!/usr/bin/env bash
# Compares what kernels/cudadriver knows of NCCL's binary interface with NVIDIA's headers, by static
# assertions that a C compiler checks: of the oldest NCCL that is loaded, of one in wide use and of a
# recent one. They come from PyPI's wheels (python3 with pip; 200 to 300 MB each on the
# first run, of which the headers are kept in .cache/), or from a folder:
#
#   ./lab/gpu/check_nccl.sh                        # the pinned wheels
#   ./lab/gpu/check_nccl.sh --include /usr/include
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"
source lab/gpu/headers.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
  echo '#include <nccl.h>'
  echo '#include <stddef.h>'
  # Our definitions, word for word.
  grep '^enum { NCCL_ID' kernels/cudadriver/nccl.h
  sed -n '/^typedef struct { char bytes/,/^} config;/p' kernels/cudadriver/nccl.c
  cat <<'END'
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)
SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_ID, NCCL_UNIQUE_ID_BYTES);
SAME(TYPE_BYTE, ncclUint8);
SAME(sizeof(unique_id), sizeof(ncclUniqueId));
SAME(offsetof(config, size), offsetof(ncclConfig_t, size));
SAME(offsetof(config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(config, blocking), offsetof(ncclConfig_t, blocking));
_Static_assert(sizeof(config) <= sizeof(ncclConfig_t), "the settings are longer than NCCL's");
_Static_assert(CONFIG_VERSION <= NCCL_VERSION_CODE, "the settings are of a later NCCL");
SAME(sizeof(int), sizeof(ncclResult_t)); // as results are read
SAME(sizeof(int), sizeof(ncclDataType_t));
SAME(sizeof(void *), sizeof(ncclComm_t));

// The functions take what they are given: a call with other arguments does not compile.
void calls(void **comm, void *p, size_t n, int i, ncclUniqueId id, ncclConfig_t *c, cudaStream_t stream) {
	ncclResult_t r = ncclGetVersion(&i);
	r = ncclGetUniqueId(&id);
	r = ncclCommInitRankConfig((ncclComm_t *)comm, i, id, i, c);
	r = ncclCommGetAsyncError((ncclComm_t)p, &r);
	r = ncclCommFinalize((ncclComm_t)p);
	r = ncclCommDestroy((ncclComm_t)p);
	r = ncclCommAbort((ncclComm_t)p);
	r = ncclGroupStart();
	r = ncclSend(p, n, ncclUint8, i, (ncclComm_t)p, stream);
	r = ncclRecv(p, n, ncclUint8, i, (ncclComm_t)p, stream);
	r = ncclGroupEnd();
	const char *text = ncclGetErrorString(r);
	text = ncclGetLastError((ncclComm_t)p);
	// What the settings begin with stands in the header's initialiser.
	ncclConfig_t begins = NCCL_CONFIG_INITIALIZER;
	_Static_assert(sizeof begins.blocking == sizeof(int), "blocking is no int");
	(void)text, (void)begins;
}
END
} >"$work/check.c"
grep -q '^} config;' "$work/check.c" && grep -q NCCL_IN_PROGRESS "$work/check.c" || die "the definitions were not found in kernels/cudadriver"

check() { # NAME FOLDER...
  local name=$1 flags=()
  shift
  for folder; do flags+=(-isystem "$folder"); done
  cc -std=gnu11 -fsyntax-only -Wall -Werror -Wno-unused-parameter -Wno-overflow "${flags[@]}" "$work/check.c" || die "$name: the interface is another one"
  # The magic number of the settings is in the initialiser alone.
  printf '#include <nccl.h>\n#include <stdio.h>\nint main() { ncclConfig_t c = NCCL_CONFIG_INITIALIZER; return printf("%%x", c.magic) < 0; }\n' >"$work/magic.c"
  cc -std=gnu11 "${flags[@]}" "$work/magic.c" -o "$work/magic"
  grep -q "CONFIG_MAGIC = (int)0x$("$work/magic")," kernels/cudadriver/nccl.c || die "$name: the magic number is $("$work/magic")"
  echo "ok  NCCL $(sed -nE 's/^#define NCCL_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p' "$1/nccl.h" | paste -sd.)"
}

# NCCL's header takes a few types of CUDA's.
cuda=("$(wheel nvidia-cuda-runtime-cu12 12.9.79)" "$(wheel nvidia-cuda-crt 13.0.88)")
cccl=$(wheel nvidia-cuda-cccl 13.0.85)
cuda+=("$cccl" "$cccl/cccl")
if [ "${1:-}" = --include ]; then
  check "$2" "$2" "${cuda[@]}"
  exit
fi
[ $# = 0 ] || die "got '$1', want --include FOLDER or nothing"
check "the oldest" "$(wheel nvidia-nccl-cu12 2.16.5)" "${cuda[@]}"
check "in wide use" "$(wheel nvidia-nccl-cu12 2.21.5)" "${cuda[@]}"
check "a recent one" "$(wheel nvidia-nccl-cu12 2.27.3)" "${cuda[@]}"
