//go:build gpu && linux && (amd64 || arm64)

#include "blaslt.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The part of cuBLASLt's binary interface that is used here.
enum {
	COMPUTE_32F = 68, R_32F = 0,
	DESC_POINTER_MODE = 2, DESC_TRANSA = 3, DESC_TRANSB = 4,
	POINTER_MODE_HOST = 0, POINTER_MODE_DEVICE = 1,
	PREF_MAX_WORKSPACE = 1, PREF_REDUCTION_SCHEMES = 3,
	PREF_ALIGN_A = 5, PREF_ALIGN_B = 6, PREF_ALIGN_C = 7, PREF_ALIGN_D = 8,
	REDUCTION_COMPUTE_TYPE = 2, REDUCTION_OUTPUT_TYPE = 4,
	NOT_SUPPORTED = 15
};
typedef struct { uint64_t data[8]; } algorithm;
typedef struct {
	algorithm algo;
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
} heuristic;

#define FUNCTIONS(X)                                                                            \
	X(Create, (void **))                                                                        \
	X(MatmulDescCreate, (void **, int, int))                                                    \
	X(MatmulDescDestroy, (void *))                                                              \
	X(MatmulDescSetAttribute, (void *, int, const void *, size_t))                              \
	X(MatrixLayoutCreate, (void **, int, uint64_t, uint64_t, int64_t))                          \
	X(MatrixLayoutDestroy, (void *))                                                            \
	X(MatmulPreferenceCreate, (void **))                                                        \
	X(MatmulPreferenceSetAttribute, (void *, int, const void *, size_t))                        \
	X(MatmulPreferenceDestroy, (void *))                                                        \
	X(MatmulAlgoGetHeuristic, (void *, void *, void *, void *, void *, void *, void *, int, heuristic *, int *)) \
	X(Matmul, (void *, void *, const void *, const void *, void *, const void *, void *, const void *, \
	           const void *, void *, void *, void *, const algorithm *, void *, size_t, void *))
#define X(name, parameters) static int (*lt##name) parameters;
FUNCTIONS(X)
#undef X
static size_t (*ltGetVersion)(void);

struct glimpse_plan {
	void *handle, *operation, *a, *b, *c;
	algorithm algo;
	size_t workspace;
};

int glimpse_blas_open(const char *path, char *error, size_t size) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) return snprintf(error, size, "%s", dlerror()), 1;
#define X(name, parameters)                                                                        \
	if (!(lt##name = (int (*) parameters)dlsym(library, "cublasLt" #name)))                         \
		return snprintf(error, size, "%s: no function cublasLt" #name, path), 1;
	FUNCTIONS(X)
#undef X
	if (!(ltGetVersion = (size_t(*)(void))dlsym(library, "cublasLtGetVersion")))
		return snprintf(error, size, "%s: no function cublasLtGetVersion", path), 1;
	return 0;
}

size_t glimpse_blas_version(void) { return ltGetVersion(); }

int glimpse_blas_handle(void **handle) { return ltCreate(handle); }

static int live; // plans
int glimpse_blas_live(void) { return __atomic_load_n(&live, __ATOMIC_RELAXED); }

void glimpse_blas_free(glimpse_plan *p) {
	__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	if (p->operation) ltMatmulDescDestroy(p->operation);
	if (p->a) ltMatrixLayoutDestroy(p->a);
	if (p->b) ltMatrixLayoutDestroy(p->b);
	if (p->c) ltMatrixLayoutDestroy(p->c);
	free(p);
}

int glimpse_blas_plan(glimpse_plan **out, void *handle, const glimpse_product *p) {
	int r = 0;
	glimpse_plan *plan = calloc(1, sizeof *plan);
	__atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
	plan->handle = handle;
	void *preference = 0;
	// Few rows leave most processors idle unless long sums are split. Parts in the workspace
	// are added by a step of their own, in one order.
	uint32_t reductions = REDUCTION_COMPUTE_TYPE | REDUCTION_OUTPUT_TYPE;
	int rowsA = p->transposeA ? p->k : p->m, columnsA = p->transposeA ? p->m : p->k;
	int rowsB = p->transposeB ? p->n : p->k, columnsB = p->transposeB ? p->k : p->n;
#define TRY(call) if ((r = call)) goto done
	TRY(ltMatmulDescCreate(&plan->operation, COMPUTE_32F, R_32F));
	TRY(ltMatmulDescSetAttribute(plan->operation, DESC_TRANSA, &p->transposeA, sizeof p->transposeA));
	TRY(ltMatmulDescSetAttribute(plan->operation, DESC_TRANSB, &p->transposeB, sizeof p->transposeB));
	int32_t mode = p->deviceFactors ? POINTER_MODE_DEVICE : POINTER_MODE_HOST;
	TRY(ltMatmulDescSetAttribute(plan->operation, DESC_POINTER_MODE, &mode, sizeof mode));
	TRY(ltMatrixLayoutCreate(&plan->a, p->typeA, rowsA, columnsA, p->lda));
	TRY(ltMatrixLayoutCreate(&plan->b, p->typeA, rowsB, columnsB, p->ldb));
	TRY(ltMatrixLayoutCreate(&plan->c, p->typeC, p->m, p->n, p->ldc));
	TRY(ltMatmulPreferenceCreate(&preference));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_MAX_WORKSPACE, &p->workspace, sizeof p->workspace));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_REDUCTION_SCHEMES, &reductions, sizeof reductions));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_ALIGN_A, &p->alignA, sizeof p->alignA));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_ALIGN_B, &p->alignB, sizeof p->alignB));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_ALIGN_C, &p->alignC, sizeof p->alignC));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_ALIGN_D, &p->alignC, sizeof p->alignC));
	heuristic result;
	int count = 0;
	TRY(ltMatmulAlgoGetHeuristic(handle, plan->operation, plan->a, plan->b, plan->c, plan->c, preference, 1, &result, &count));
	if (count < 1) r = NOT_SUPPORTED;
	plan->algo = result.algo;
	plan->workspace = result.workspace;
#undef TRY
done:
	if (preference) ltMatmulPreferenceDestroy(preference);
	if (r) glimpse_blas_free(plan);
	else *out = plan;
	return r;
}

size_t glimpse_blas_workspace(const glimpse_plan *plan) { return plan->workspace; }

int glimpse_blas_run(const glimpse_plan *p, float alpha, float beta, const float *factors, const void *a, const void *b,
                     void *c, void *workspace, void *stream) {
	const float *by[2] = {factors ? factors : &alpha, factors ? factors + 1 : &beta};
	return ltMatmul(p->handle, p->operation, by[0], a, p->a, b, p->b, by[1], c, p->c, c, p->c, &p->algo,
	                workspace, p->workspace, stream);
}
