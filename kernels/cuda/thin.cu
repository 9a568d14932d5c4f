// Products with few results of long sums, as those with a low-rank factor: split along the
// sums over blocks, and merged in order. A tile of a product for tensor cores would be one
// block that goes through the whole sum.
#include "prims.h"

enum { THIN_ROWS = 32, THIN_COLUMNS = 8, THIN_DEPTH = 128 }; // as in scratch.go

// part [splits, m, n]: products of the block's columns of x [m, k] and w, which is [n, k]
// or, where it is not transposed, [k, n]. A block has a thread for each of its results.
template <bool TRANSPOSED, class X>
static __device__ __forceinline__ void thin_parts(float *part, const X *x, const float *w, int m, int n, int k,
                                                  float (&rows)[THIN_ROWS][THIN_DEPTH + 1],
                                                  float (&columns)[THIN_COLUMNS][THIN_DEPTH + 1]) {
	const int begin = blockIdx.x * THIN_DEPTH, depth = min((int)THIN_DEPTH, k - begin);
	const int row = blockIdx.y * THIN_ROWS, column = blockIdx.z * THIN_COLUMNS;
	for (int i = threadIdx.x; i < THIN_ROWS * THIN_DEPTH; i += blockDim.x) {
		int r = i / THIN_DEPTH, d = i % THIN_DEPTH;
		rows[r][d] = row + r < m && d < depth ? to_float(x[(size_t)(row + r) * k + begin + d]) : 0;
	}
	for (int i = threadIdx.x; i < THIN_COLUMNS * THIN_DEPTH; i += blockDim.x) {
		int c = TRANSPOSED ? i / THIN_DEPTH : i % THIN_COLUMNS, d = TRANSPOSED ? i % THIN_DEPTH : i / THIN_COLUMNS;
		size_t at = TRANSPOSED ? (size_t)(column + c) * k + begin + d : (size_t)(begin + d) * n + column + c;
		columns[c][d] = column + c < n && d < depth ? w[at] : 0;
	}
	__syncthreads(); // the tiles are there
	int r = threadIdx.x / THIN_COLUMNS, c = threadIdx.x % THIN_COLUMNS;
	if (row + r >= m || column + c >= n) return;
	float sum = 0;
	for (int d = 0; d < depth; d++) sum += rows[r][d] * columns[c][d];
	part[((size_t)blockIdx.x * m + row + r) * n + column + c] = sum;
}

#define THIN(name, TRANSPOSED, X)                                                                           \
	extern "C" __global__ void name(float *part, const X *x, const float *w, int m, int n, int k) {         \
		__shared__ float rows[THIN_ROWS][THIN_DEPTH + 1], columns[THIN_COLUMNS][THIN_DEPTH + 1];            \
		thin_parts<TRANSPOSED>(part, x, w, m, n, k, rows, columns);                                         \
	}                                                                                                       \
	HOST_KERNEL(name)
THIN(thin_linear_f32, true, float)
THIN(thin_linear_bf16, true, __nv_bfloat16)
THIN(thin_matmul_f32, false, float)
THIN(thin_matmul_bf16, false, __nv_bfloat16)

// y [n] = alpha · (sum of the splits, in order) + beta · y.
extern "C" __global__ void thin_merge(float *y, const float *part, int splits, float alpha, float beta, size_t n) {
	size_t i = thread_index();
	if (i >= n) return;
	float sum = 0;
	for (int s = 0; s < splits; s++) sum += part[s * n + i];
	y[i] = beta == 0 ? alpha * sum : alpha * sum + beta * y[i];
}
HOST_KERNEL(thin_merge)

// y [m, out] += scale · t · wᵀ, w [out, rank], where t [m, rank] is the sum of the splits,
// in order: each block merges all of it and has a thread for each of 64 columns and every
// fourth row. m·rank is at most THIN_RESULTS.
enum { THIN_RESULTS = 4096, UPDATE_COLUMNS = 64, UPDATE_THREADS = 256 }; // as in scratch.go
extern "C" __global__ void low_rank_update(float *y, const float *part, const float *w, int m, int out, int rank, int splits, float scale) {
	__shared__ float t[THIN_RESULTS];
	for (int i = threadIdx.x; i < m * rank; i += blockDim.x) {
		float sum = 0;
		for (int s = 0; s < splits; s++) sum += part[(size_t)s * m * rank + i];
		t[i] = sum;
	}
	__syncthreads(); // the factor's rows are there
	int column = blockIdx.x * UPDATE_COLUMNS + threadIdx.x % UPDATE_COLUMNS;
	if (column >= out) return;
	for (int r = threadIdx.x / UPDATE_COLUMNS; r < m; r += UPDATE_THREADS / UPDATE_COLUMNS) {
		float sum = 0;
		for (int d = 0; d < rank; d++) sum += t[r * rank + d] * w[(size_t)column * rank + d];
		y[(size_t)r * out + column] += scale * sum;
	}
}
HOST_KERNEL(low_rank_update)
