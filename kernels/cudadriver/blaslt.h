// Matrix products by cuBLASLt, whose library is loaded at run time.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Loads the library; 0, or a message in error.
int glimpse_blas_open(const char *path, char *error, size_t size);
size_t glimpse_blas_version(void);

// One product of fixed shapes and types, in column-major order:
// c [m, n] = alpha · op(a) · op(b) + beta · c, op(a) [m, k], op(b) [k, n].
typedef struct glimpse_product {
	int transposeA, transposeB;
	int typeA, typeC;          // of a and b, and of c: cudaDataType values
	int64_t m, n, k, lda, ldb, ldc;
	uint32_t alignA, alignB, alignC; // bytes
	size_t workspace;          // most bytes that an algorithm may ask for
	int deviceFactors;         // alpha and beta lie in device memory
} glimpse_product;

typedef struct glimpse_plan glimpse_plan;

// Chooses an algorithm, the same one for the same product and device. Split
// reductions are ruled out: they may sum in another order from run to run.
int glimpse_blas_handle(void **handle); // for the current context
int glimpse_blas_plan(glimpse_plan **plan, void *handle, const glimpse_product *p);
void glimpse_blas_free(glimpse_plan *plan);
int glimpse_blas_live(void); // plans that are not freed
size_t glimpse_blas_workspace(const glimpse_plan *plan);
// factors is the device memory of alpha and beta where the plan takes them from there, else 0.
int glimpse_blas_run(const glimpse_plan *plan, float alpha, float beta, const float *factors, const void *a, const void *b,
                     void *c, void *workspace, void *stream);
