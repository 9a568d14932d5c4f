// The twin of cuBLASLt: the calls that kernels/cudadriver makes, as plain loops.
// Inputs in half precision are exact in float32; sums are float32 in order of k. With
// HOSTCUDA_MMA=truncate products in half precision truncate like a tensor core's. HOSTCUDA_WORKSPACE is
// how many bytes an algorithm asks for; a rehearsal's depends on the shape.
#include "mma.h"
#include "runtime.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <vector>

using namespace hc;

namespace {
enum { R_32F = 0, R_16F = 2, R_16BF = 14, OK = 0, BLAS_INVALID = 7, NOT_SUPPORTED = 15, EXECUTION_FAILED = 13 };

struct Operation { int device_factors = 0, transpose[2] = {0, 0}; };
struct Layout { int type; uint64_t rows, columns; int64_t ld; };
struct Preference { uint32_t align[4] = {256, 256, 256, 256}; };
// The alignment that the caller promised stands in the algorithm, to be checked.
struct Algorithm { uint64_t magic; uint32_t align[4]; uint64_t rest[5]; };
struct Heuristic { Algorithm algo; size_t workspace; int state; float waves; int reserved[4]; };
const uint64_t MAGIC = 0x676c696d70736531;

size_t size_of(int type) { return type == R_32F ? 4 : 2; }

bool covered(const Layout &l, const void *p, size_t align) {
	size_t n = l.columns ? ((l.columns - 1) * l.ld + l.rows) * size_of(l.type) : 0;
	if ((uintptr_t)p % align) return report("cublasLtMatmul: address %p is not aligned to %zu", p, align), false;
	if (!mem_contains((uintptr_t)p, n)) return report("cublasLtMatmul: %zu bytes at %s", n, mem_describe((uintptr_t)p).c_str()), false;
	return true;
}

float dot(const float *p, const float *q, size_t k) {
#ifdef HC_CHIP // in eight parts, as nothing says in which order cuBLASLt adds
	float part[8] = {};
	for (size_t l = 0; l < k; l++) part[l & 7] = __builtin_fmaf(p[l], q[l], part[l & 7]);
	return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
#else
	float sum = 0;
	for (size_t l = 0; l < k; l++) sum += p[l] * q[l];
	return sum;
#endif
}

// A matrix as rows of float, transposed where asked for.
std::vector<float> unpack(const Layout &l, const void *p, bool transpose) {
	std::vector<float> out(l.rows * l.columns);
	for (uint64_t c = 0; c < l.columns; c++)
		for (uint64_t r = 0; r < l.rows; r++) {
			size_t at = c * l.ld + r;
			float v = l.type == R_16BF  ? __bfloat162float(((const __nv_bfloat16 *)p)[at])
			          : l.type == R_16F ? __half2float(((const __half *)p)[at])
			                            : ((const float *)p)[at];
			out[transpose ? c * l.rows + r : r * l.columns + c] = v;
		}
	return out;
}
} // namespace

#define LT(name) extern "C" __attribute__((visibility("default"))) int cublasLt##name

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 0; }
// HOSTCUDA_BLAS is how the name of a library ends that makes no handle, as one does which
// is too new for the driver.
LT(Create)(void **h) {
	const char *end = getenv("HOSTCUDA_BLAS");
	Dl_info self = {};
	dladdr((void *)cublasLtCreate, &self);
	size_t n = end ? strlen(end) : 0, all = self.dli_fname ? strlen(self.dli_fname) : 0;
	if (n && n <= all && !strcmp(self.dli_fname + all - n, end)) return 1;
	return *h = malloc(1), OK;
}
LT(MatmulDescCreate)(void **d, int compute, int scale) {
	if (compute != 68 || scale != R_32F) return NOT_SUPPORTED;
	return *d = new Operation, OK;
}
LT(MatmulDescDestroy)(void *d) { return delete (Operation *)d, OK; }
LT(MatmulDescSetAttribute)(void *d, int attribute, const void *value, size_t n) {
	Operation &op = *(Operation *)d;
	if (attribute < 2 || attribute > 4 || n != 4) return NOT_SUPPORTED;
	return memcpy(attribute == 2 ? &op.device_factors : &op.transpose[attribute - 3], value, n), OK;
}
LT(MatrixLayoutCreate)(void **l, int type, uint64_t rows, uint64_t columns, int64_t ld) {
	if ((type != R_32F && type != R_16F && type != R_16BF) || ld < (int64_t)rows) return BLAS_INVALID;
	return *l = new Layout{type, rows, columns, ld}, OK;
}
LT(MatrixLayoutDestroy)(void *l) { return delete (Layout *)l, OK; }
LT(MatmulPreferenceCreate)(void **p) { return *p = new Preference, OK; }
LT(MatmulPreferenceDestroy)(void *p) { return delete (Preference *)p, OK; }
LT(MatmulPreferenceSetAttribute)(void *p, int attribute, const void *value, size_t n) {
	if (attribute >= 5 && attribute <= 8 && n == 4) memcpy(&((Preference *)p)->align[attribute - 5], value, n);
	return OK;
}
LT(MatmulAlgoGetHeuristic)(void *, void *d, void *a, void *b, void *c, void *e, void *p, int asked, Heuristic *h, int *found) {
	const Operation &op = *(Operation *)d;
	const Layout &A = *(Layout *)a, &B = *(Layout *)b, &C = *(Layout *)c;
	uint64_t m = op.transpose[0] ? A.columns : A.rows, k = op.transpose[0] ? A.rows : A.columns;
	uint64_t kb = op.transpose[1] ? B.columns : B.rows, n = op.transpose[1] ? B.rows : B.columns;
	*found = 0;
	if (getenv("HOSTCUDA_EVEN") && A.type != R_32F && (A.ld % 2 || B.ld % 2)) return OK; // no algorithm
	if (asked < 1 || c != e || A.type != B.type || C.type != R_32F || k != kb || C.rows != m || C.columns != n) return BLAS_INVALID;
	memset(h, 0, sizeof *h);
	h->algo.magic = MAGIC;
	memcpy(h->algo.align, ((Preference *)p)->align, sizeof h->algo.align);
#ifdef HC_CHIP
	h->workspace = k >= 512 && m * n <= 1 << 16 ? 4 << 20 : 0; // sums that are split
#else
	if (const char *workspace = getenv("HOSTCUDA_WORKSPACE")) h->workspace = strtoull(workspace, nullptr, 10);
#endif
	return *found = 1, OK;
}
LT(Matmul)(void *, void *d, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta,
           const void *c, void *lc, void *e, void *le, const Algorithm *algo, void *workspace, size_t room, uint64_t stream) {
	if (algo->magic != MAGIC || c != e || lc != le) return BLAS_INVALID;
	Operation op = *(Operation *)d;
	Layout A = *(Layout *)la, B = *(Layout *)lb, C = *(Layout *)lc;
	Algorithm how = *algo;
	float host[2] = {};
	if (!op.device_factors) host[0] = *(const float *)alpha, host[1] = *(const float *)beta;
	const char *mma = getenv("HOSTCUDA_MMA");
	bool truncate = A.type != R_32F && mma && !strcmp(mma, "truncate");
	int r = enqueue_library(stream, [=] {
		if (!covered(A, a, how.align[0]) || !covered(B, b, how.align[1]) || !covered(C, c, how.align[2])) return ILLEGAL_ADDRESS;
		if (room && !mem_contains((uintptr_t)workspace, room)) return ILLEGAL_ADDRESS;
		if (op.device_factors && (!mem_contains((uintptr_t)alpha, 4) || !mem_contains((uintptr_t)beta, 4))) return ILLEGAL_ADDRESS;
		mem_open();
		mem_touch((uintptr_t)a), mem_touch((uintptr_t)b), mem_touch((uintptr_t)c);
		float al = host[0], be = host[1];
		if (op.device_factors) mem_touch((uintptr_t)alpha), al = *(const float *)alpha, be = *(const float *)beta;
		// Rows of op(a), and columns of op(b) as rows.
		std::vector<float> x = unpack(A, a, op.transpose[0]), y = unpack(B, b, !op.transpose[1]);
		float *out = (float *)e;
		size_t k = op.transpose[0] ? A.rows : A.columns;
		for (uint64_t j = 0; j < C.columns; j++)
			for (uint64_t i = 0; i < C.rows; i++) {
				const float *p = &x[i * k], *q = &y[j * k];
				float sum = 0;
				if (truncate)
					for (size_t l = 0; l < k; l += 8) {
						double part = sum;
						for (size_t o = l; o < k && o < l + 8; o++) part += (double)p[o] * q[o];
						sum = truncated(part);
					}
				else
					sum = dot(p, q, k);
				float &at = out[j * C.ld + i];
				at = be == 0 ? al * sum : al * sum + be * at;
			}
		return SUCCESS;
	});
	return r ? EXECUTION_FAILED : OK;
}
