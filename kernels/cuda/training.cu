// What a training step does besides attention: low-rank updates of linear layers with their
// gradients, and the optimiser over all tensors of an adapter at once.
#include "adamw.h"
#include "pointwise.h"
#include "split.h"

constexpr int RANKS = 8; // at a time

// low [rows, rank] = factor · x [rows, width] · mᵀ: element (j, d) of m lies at j·row + d·column,
// m being A [rank, width] or B [width, rank]. One block for a row and RANKS of the ranks, so
// that there are enough of them for a few rows of a wide model. The first ranks' blocks write
// x in three bf16 parts [3, n] like split_bf16, where parts is not null.
extern "C" __global__ void __launch_bounds__(512, 1) low_rank_down(float *low, __nv_bfloat16 *parts, const float *x, const float *m, int width, int rank,
                                                                   size_t row, size_t column, size_t n, float factor) {
	__shared__ float partial[RANKS][16]; // by warp
	const int first = blockIdx.y * RANKS, count = min(RANKS, rank - first), lane = threadIdx.x % 32, warps = blockDim.x / 32;
	const size_t start = (size_t)blockIdx.x * width;
	m += first * row;
	if (parts && first > 0) parts = nullptr;
	float sum[RANKS] = {};
#pragma unroll 4
	for (int d = threadIdx.x; d < width; d += blockDim.x) {
		float v = x[start + d];
#pragma unroll
		for (int j = 0; j < RANKS; j++)
			if (j < count) sum[j] += v * m[j * row + d * column];
		if (parts) split_three(parts + start + d, n, v);
	}
#pragma unroll
	for (int j = 0; j < RANKS; j++) {
		if (j >= count) break;
		float s = warp_sum(sum[j]);
		if (lane == 0) partial[j][threadIdx.x / 32] = s;
	}
	__syncthreads(); // the warps' sums are there
	if ((int)threadIdx.x >= count) return;
	float s = 0;
	for (int w = 0; w < warps; w++) s += partial[threadIdx.x][w];
	low[(size_t)blockIdx.x * rank + first + threadIdx.x] = factor * s;
}
HOST_KERNEL(low_rank_down)

// Σ a[j·sa] · b[j·sb].
static __device__ __forceinline__ float short_dot(const float *a, size_t sa, const float *b, size_t sb, int n) {
	float s = 0;
#pragma unroll 8
	for (int j = 0; j < n; j++) s += a[j * sa] * b[j * sb];
	return s;
}

// What a low-rank update is added to: y, or the sum of three products [3, n] of parts.
static __device__ __forceinline__ float updated(const float *y, const float *products, size_t i, size_t n) {
	return products ? products[i] + (products[n + i] + products[2 * n + i]) : y[i];
}

// y [rows, out] plus, or, where products is not null, their sum plus scale · low [rows, rank] ·
// bᵀ, b [out, rank]; one thread per element.
extern "C" __global__ void low_rank_up(float *y, const float *products, const float *low, const float *b, size_t n, int out, int rank, float scale) {
	size_t i = thread_index();
	if (i >= n) return;
	y[i] = updated(y, products, i, n) + scale * short_dot(low + i / out * rank, 1, b + i % out * rank, 1, rank);
}
HOST_KERNEL(low_rank_up)

// With dlow [rows, rank]: dx [rows, in], or the sum of products, plus dlow · a, da [rank, in] =
// dlowᵀ · x and db [out, rank] = scale · dyᵀ · low, whose elements follow each other in the
// threads.
extern "C" __global__ void low_rank_grads(float *dx, float *da, float *db, const float *products, const float *dlow, const float *dy, const float *x,
                                          const float *low, const float *a, int rows, int in, int out, int rank, float scale) {
	size_t i = thread_index(), inputs = (size_t)rows * in, ranks = (size_t)rank * in;
	if (i < inputs) {
		dx[i] = updated(dx, products, i, inputs) + short_dot(dlow + i / in * rank, 1, a + i % in, in, rank);
	} else if ((i -= inputs) < ranks) {
		da[i] = short_dot(dlow + i / in, rank, x + i % in, in, rows);
	} else if ((i -= ranks) < (size_t)out * rank) {
		db[i] = scale * short_dot(dy + i / rank, out, low + i % rank, rank, rows);
	}
}
HOST_KERNEL(low_rank_grads)

// rope of elements.cu from x to y.
extern "C" __global__ void rotate(float *y, const float *x, const int *pos, const float *cosines, const float *sines, size_t n, int heads, int half, float sign) {
	size_t i = thread_index();
	if (i >= n) return;
	size_t head = i / half, j = i % half, angle = (size_t)pos[head / heads] * half + j, at = head * 2 * half + j;
	float u = x[at], v = x[at + half];
	turn(&u, &v, cosines[angle], sign * sines[angle]);
	y[at] = u;
	y[at + half] = v;
}
HOST_KERNEL(rotate)

// A part of one tensor, or of several of equal shape: a block works on one.
struct Piece {
	float *a;
	const float *b;
	float *c, *d;
	size_t n;
};
#define PIECE                           \
	const Piece piece = pieces[blockIdx.x]; \
	for (size_t i = threadIdx.x; i < piece.n; i += blockDim.x)

extern "C" __global__ void fill_pieces(const Piece *pieces, float v) { PIECE piece.a[i] = v; }
extern "C" __global__ void axpy_pieces(const Piece *pieces, float alpha) { PIECE piece.a[i] += alpha * piece.b[i]; }
HOST_KERNEL(fill_pieces)
HOST_KERNEL(axpy_pieces)

// part [piece] = Σ a², in double.
extern "C" __global__ void square_pieces(double *part, const Piece *pieces) {
	__shared__ double partial[32];
	double s = 0;
	PIECE s += (double)piece.a[i] * piece.a[i];
	s = block_sum(s, partial);
	if (threadIdx.x == 0) part[blockIdx.x] = s;
}
HOST_KERNEL(square_pieces)

// a is the parameter, b the gradient, c and d the moments; as adamw of elements.cu.
extern "C" __global__ void __launch_bounds__(256) adamw_pieces(const Piece *pieces, double beta1, double beta2, double correct1, double correct2, double epsilon, double rate,
                                        double decay, double grad_scale) {
	const Piece piece = pieces[blockIdx.x];
#pragma unroll 1
	for (int i = threadIdx.x; i < (int)piece.n; i += blockDim.x)
		adamw_element(piece.a + i, piece.b[i], piece.c + i, piece.d + i, beta1, beta2, correct1, correct2, epsilon, rate, decay, grad_scale);
}
HOST_KERNEL(adamw_pieces)
