#!/usr/bin/env bash
# Compares what kernels/cudadriver knows of cuBLASLt's binary interface, written down
# there so that no toolkit is needed to build, with NVIDIA's headers of CUDA 12 and 13,
# by static assertions that a C compiler checks. The headers come from PyPI's wheels
# (python3 with pip; about 1 GB is fetched on the first run, of which only the headers
# are kept, in .cache/), or from a folder of a toolkit:
#
#   ./lab/gpu/check_blaslt.sh                              # the pinned wheels
#   ./lab/gpu/check_blaslt.sh --include /usr/local/cuda/include
set -euo pipefail
source "$(dirname "$0")/../../scripts/common.sh"
source lab/gpu/headers.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
  echo '#include <cublasLt.h>'
  echo '#include <stddef.h>'
  # The enumeration and the structures of blaslt.c, word for word.
  sed -n '/^enum {/,/^} heuristic;/p' kernels/cudadriver/blaslt.c
  # The element types of blaslt.go.
  sed -nE 's/^\t(F32|BF16) += ([0-9]+)$/enum { GO_\1 = \2 };/p' kernels/cudadriver/blaslt.go
  cat <<'END'
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)
SAME(COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(R_32F, CUDA_R_32F);
SAME(GO_F32, CUDA_R_32F);
SAME(GO_BF16, CUDA_R_16BF);
SAME(DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(0, CUBLAS_OP_N);
SAME(1, CUBLAS_OP_T);
SAME(0, CUBLASLT_REDUCTION_SCHEME_NONE);
SAME(0, CUBLAS_STATUS_SUCCESS);
SAME(PREF_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(PREF_REDUCTION_SCHEMES, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(REDUCTION_OUTPUT_TYPE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
SAME(PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(PREF_ALIGN_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(PREF_ALIGN_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(PREF_ALIGN_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(sizeof(algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(heuristic), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(heuristic, algo), offsetof(cublasLtMatmulHeuristicResult_t, algo));
SAME(offsetof(heuristic, workspace), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(heuristic, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(offsetof(heuristic, waves), offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
SAME(sizeof(int), sizeof(cublasOperation_t)); // as glimpse_product passes transpositions
SAME(sizeof(int), sizeof(cudaDataType_t));
SAME(sizeof(int), sizeof(cublasComputeType_t));

// The functions take what they are given: a call with other arguments does not compile.
void calls(void **handle, void *p, uint64_t n, int64_t ld, int count, cublasLtMatmulHeuristicResult_t *h, const cublasLtMatmulAlgo_t *algo) {
	cublasLtCreate((cublasLtHandle_t *)handle);
	cublasLtMatmulDescCreate((cublasLtMatmulDesc_t *)handle, COMPUTE_32F, R_32F);
	cublasLtMatmulDescSetAttribute((cublasLtMatmulDesc_t)p, DESC_TRANSA, p, sizeof(int));
	cublasLtMatrixLayoutCreate((cublasLtMatrixLayout_t *)handle, R_32F, n, n, ld);
	cublasLtMatmulDescDestroy((cublasLtMatmulDesc_t)p);
	cublasLtMatrixLayoutDestroy((cublasLtMatrixLayout_t)p);
	cublasLtMatmulPreferenceCreate((cublasLtMatmulPreference_t *)handle);
	cublasLtMatmulPreferenceSetAttribute((cublasLtMatmulPreference_t)p, PREF_MAX_WORKSPACE, p, sizeof(size_t));
	cublasLtMatmulPreferenceDestroy((cublasLtMatmulPreference_t)p);
	cublasLtMatmulAlgoGetHeuristic((cublasLtHandle_t)p, (cublasLtMatmulDesc_t)p, (cublasLtMatrixLayout_t)p, (cublasLtMatrixLayout_t)p,
	                               (cublasLtMatrixLayout_t)p, (cublasLtMatrixLayout_t)p, (cublasLtMatmulPreference_t)p, 1, h, &count);
	cublasLtMatmul((cublasLtHandle_t)p, (cublasLtMatmulDesc_t)p, p, p, (cublasLtMatrixLayout_t)p, p, (cublasLtMatrixLayout_t)p, p, p,
	               (cublasLtMatrixLayout_t)p, p, (cublasLtMatrixLayout_t)p, algo, p, n, (cudaStream_t)p);
	size_t version = cublasLtGetVersion();
	(void)version;
}
END
} >"$work/check.c"
grep -q GO_BF16 "$work/check.c" && grep -q '^} heuristic;' "$work/check.c" || die "the definitions were not found in kernels/cudadriver"

check() { # NAME FOLDER...
  local name=$1 flags=()
  shift
  for folder; do flags+=(-isystem "$folder"); done
  cc -std=gnu11 -fsyntax-only -Wall -Werror -Wno-unused-parameter "${flags[@]}" "$work/check.c" || die "$name: the interface is another one"
  echo "ok  $name: cuBLASLt $(sed -nE 's/^#define CUBLAS_VER_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p' "$1/cublas_api.h" | paste -sd.)"
}

if [ "${1:-}" = --include ]; then
  check "$2" "$2"
  exit
fi
[ $# = 0 ] || die "got '$1', want --include FOLDER or nothing"

# What the compiler's own headers bring, the same for both.
crt=$(wheel nvidia-cuda-crt 13.0.88) cccl=$(wheel nvidia-cuda-cccl 13.0.85)
check "CUDA 12" "$(wheel nvidia-cublas-cu12 12.9.2.10)" "$(wheel nvidia-cuda-runtime-cu12 12.9.79)" "$crt" "$cccl" "$cccl/cccl"
check "CUDA 13" "$(wheel nvidia-cublas 13.1.2.11)" "$(wheel nvidia-cuda-runtime 13.0.96)" "$crt" "$cccl" "$cccl/cccl"
