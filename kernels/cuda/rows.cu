// Reductions: norms, one block per row of x [rows, width], and sums. A norm that ends in
// _bf16 rounds what it writes, for products that round.
#include "prims.h"

// Elements of a row that a thread asks for before it uses any, a block's threads apart; of a row that
// has no more of them they stay in registers.
constexpr int HELD = 16;

// A row as it is.
struct Row {
	const float *x;
	__device__ __forceinline__ void first(float (&v)[HELD], int begin, int width) const {
#pragma unroll
		for (int i = 0; i < HELD; i++) {
			const int d = begin + i * blockDim.x;
			v[i] = d < width ? x[d] : 0;
		}
	}
};

// A row x + delta. The sum is stored when elements are read first; the same thread reads them
// again, so that no barrier is needed.
struct AddedRow {
	float *x;
	const float *delta;
	__device__ __forceinline__ void first(float (&v)[HELD], int begin, int width) const {
		float more[HELD];
		Row{x}.first(v, begin, width), Row{delta}.first(more, begin, width);
#pragma unroll
		for (int i = 0; i < HELD; i++) {
			const int d = begin + i * blockDim.x;
			v[i] += more[i];
			if (d < width) x[d] = v[i];
		}
	}
};

// 1 / sqrt(mean(x²) + eps); v are the thread's last elements that were read. A sum has the order of
// the elements; those past the end add nothing.
template <class R> static __device__ __forceinline__ float inverse_rms(float (&v)[HELD], R row, int width, float eps, float (&partial)[32]) {
	float s = 0;
#pragma unroll 1
	for (int d = threadIdx.x; d < width; d += HELD * blockDim.x) {
		row.first(v, d, width);
#pragma unroll
		for (int i = 0; i < HELD; i++) s += v[i] * v[i];
	}
	return 1 / sqrtf(block_sum(s, partial) / width + eps);
}

template <class R, class Y>
static __device__ __forceinline__ void rms_norm_row(Y *y, R row, const float *w, int width, float eps, float (&partial)[32]) {
	float v[HELD], weight[HELD], inv = inverse_rms(v, row, width, eps, partial);
#pragma unroll 1
	for (int d = threadIdx.x; d < width; d += HELD * blockDim.x) {
		Row{w}.first(weight, d, width);
		if (width > HELD * (int)blockDim.x) Row{row.x}.first(v, d, width);
#pragma unroll
		for (int i = 0; i < HELD; i++)
			if (const int at = d + i * blockDim.x; at < width) put(y + at, v[i] * inv * weight[i]);
	}
}

// rms_norm: y = norm of x. add_rms_norm: x += delta, y = norm of x.
#define RMS_NORM(suffix, Y)                                                                                           \
	extern "C" __global__ void rms_norm##suffix(Y *y, const float *x, const float *w, int width, float eps) {         \
		__shared__ float partial[32];                                                                                 \
		size_t row = (size_t)blockIdx.x * width;                                                                      \
		rms_norm_row(y + row, Row{x + row}, w, width, eps, partial);                                                  \
	}                                                                                                                 \
	extern "C" __global__ void add_rms_norm##suffix(Y *y, float *x, const float *delta, const float *w, int width,    \
	                                                float eps) {                                                      \
		__shared__ float partial[32];                                                                                 \
		size_t row = (size_t)blockIdx.x * width;                                                                      \
		rms_norm_row(y + row, AddedRow{x + row, delta + row}, w, width, eps, partial);                                \
	}                                                                                                                 \
	HOST_KERNEL(rms_norm##suffix)                                                                                     \
	HOST_KERNEL(add_rms_norm##suffix)
RMS_NORM(, float)
RMS_NORM(_bf16, __nv_bfloat16)

extern "C" __global__ void rms_norm_grad(float *dx, const float *x, const float *w, const float *dy, int width, float eps) {
	__shared__ float partial[32];
	size_t row = (size_t)blockIdx.x * width;
	x += row, dx += row, dy += row;
	float v[HELD], inv = inverse_rms(v, Row{x}, width, eps, partial), dot = 0;
	for (int d = threadIdx.x; d < width; d += blockDim.x) dot += dy[d] * w[d] * x[d];
	dot = block_sum(dot, partial) * inv * inv / width;
	for (int d = threadIdx.x; d < width; d += blockDim.x) dx[d] = inv * (dy[d] * w[d] - x[d] * dot);
}
HOST_KERNEL(rms_norm_grad)

// The mean of x and the reciprocal of its standard deviation.
template <class R> static __device__ __forceinline__ float moments(R row, int width, float eps, float (&partial)[32], float *mean) {
	float s = 0;
	float v[HELD];
#pragma unroll 1
	for (int d = threadIdx.x; d < width; d += HELD * blockDim.x) {
		row.first(v, d, width);
#pragma unroll
		for (int i = 0; i < HELD; i++) s += v[i];
	}
	float mu = *mean = block_sum(s, partial) / width;
	s = 0;
	for (int d = threadIdx.x; d < width; d += blockDim.x) s += (row.x[d] - mu) * (row.x[d] - mu);
	return 1 / sqrtf(block_sum(s, partial) / width + eps);
}

template <class R, class Y>
static __device__ __forceinline__ void layer_norm_row(Y *y, R row, const float *w, const float *bias, int width, float eps,
                                                      float (&partial)[32]) {
	float mean, inv = moments(row, width, eps, partial, &mean);
	for (int d = threadIdx.x; d < width; d += blockDim.x) put(y + d, (row.x[d] - mean) * inv * w[d] + bias[d]);
}

#define LAYER_NORM(suffix, Y)                                                                                         \
	extern "C" __global__ void layer_norm##suffix(Y *y, const float *x, const float *w, const float *bias, int width, \
	                                              float eps) {                                                        \
		__shared__ float partial[32];                                                                                 \
		size_t row = (size_t)blockIdx.x * width;                                                                      \
		layer_norm_row(y + row, Row{x + row}, w, bias, width, eps, partial);                                          \
	}                                                                                                                 \
	extern "C" __global__ void add_layer_norm##suffix(Y *y, float *x, const float *delta, const float *w,             \
	                                                  const float *bias, int width, float eps) {                      \
		__shared__ float partial[32];                                                                                 \
		size_t row = (size_t)blockIdx.x * width;                                                                      \
		layer_norm_row(y + row, AddedRow{x + row, delta + row}, w, bias, width, eps, partial);                        \
	}                                                                                                                 \
	HOST_KERNEL(layer_norm##suffix)                                                                                   \
	HOST_KERNEL(add_layer_norm##suffix)
LAYER_NORM(, float)
LAYER_NORM(_bf16, __nv_bfloat16)

extern "C" __global__ void layer_norm_grad(float *dx, const float *x, const float *w, const float *dy, int width, float eps) {
	__shared__ float partial[32];
	size_t row = (size_t)blockIdx.x * width;
	x += row, dx += row, dy += row;
	float mean, inv = moments(Row{x}, width, eps, partial, &mean), sum = 0, dot = 0;
	for (int d = threadIdx.x; d < width; d += blockDim.x) {
		float g = dy[d] * w[d];
		sum += g;
		dot += g * (x[d] - mean) * inv;
	}
	sum = block_sum(sum, partial) / width;
	dot = block_sum(dot, partial) / width;
	for (int d = threadIdx.x; d < width; d += blockDim.x) dx[d] = inv * (dy[d] * w[d] - sum - (x[d] - mean) * inv * dot);
}
HOST_KERNEL(layer_norm_grad)

// Partial sums of x² in double: block b sums elements [b·chunk, (b+1)·chunk). Chunks depend
// on n alone, never on the device, so that the sum has the same bits everywhere.
extern "C" __global__ void sum_squares(double *part, const float *x, size_t n, size_t chunk) {
	__shared__ double partial[32];
	size_t from = blockIdx.x * chunk, to = from + chunk < n ? from + chunk : n;
	double s = 0;
	for (size_t i = from + threadIdx.x; i < to; i += blockDim.x) s += (double)x[i] * x[i];
	s = block_sum(s, partial);
	if (threadIdx.x == 0) part[blockIdx.x] = s;
}
HOST_KERNEL(sum_squares)

// total = weight · Σ part [n], in index order; with add, it is added to total. One thread.
extern "C" __global__ void sum_parts(double *total, const double *part, int n, double weight, int add) {
	double s = 0;
	for (int i = 0; i < n; i++) s += part[i];
	*total = weight * s + (add ? *total : 0);
}
HOST_KERNEL(sum_parts)

// The loss of LookaheadKV (arXiv:2603.10899, eq. 5), one block per head. target and score
// [heads, n] are logarithms: p and s are their softmax over n. part[h] = KL(p ‖ s), and
// dscore = weight · (s − p) its gradient. A head whose targets are all −Inf has loss and
// gradient 0.
extern "C" __global__ void score_kl(double *part, float *dscore, const float *score, const float *target, int n, double weight) {
	__shared__ float partial[32];
	__shared__ double wide[32];
	size_t head = (size_t)blockIdx.x * n;
	dscore += head, score += head, target += head;
	double sum = 0, z = 0, kl = 0;
	float target_top = -INFINITY, top = -INFINITY;
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		target_top = fmaxf(target_top, target[j]);
		top = fmaxf(top, score[j]);
	}
	target_top = block_max(target_top, partial);
	top = block_max(top, partial);
	if (target_top == -INFINITY) {
		for (int j = threadIdx.x; j < n; j += blockDim.x) dscore[j] = 0;
		if (threadIdx.x == 0) part[blockIdx.x] = 0;
		return;
	}
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		sum += expf(target[j] - target_top);
		z += expf(score[j] - top);
	}
	double target_z = target_top + log(block_sum(sum, wide));
	z = top + log(block_sum(z, wide));
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		double log_q = target[j] - target_z, log_s = score[j] - z, q = expf((float)log_q);
		if (q > 0) kl += q * (log_q - log_s);
		dscore[j] = (float)(weight * (expf((float)log_s) - q));
	}
	kl = block_sum(kl, wide);
	if (threadIdx.x == 0) part[blockIdx.x] = kl;
}
HOST_KERNEL(score_kl)

// The loss of Judge Q (arXiv:2509.10798, eq. 5), one block per chunk of the n elements:
// part[b] = Σ (exp(score) − exp(target))², and dscore = weight times its gradient.
extern "C" __global__ void score_mse(double *part, float *dscore, const float *score, const float *target, size_t n, size_t chunk, double weight) {
	__shared__ double wide[32];
	size_t from = blockIdx.x * chunk, to = from + chunk < n ? from + chunk : n;
	double sum = 0;
	for (size_t i = from + threadIdx.x; i < to; i += blockDim.x) {
		float s = expf(score[i]);
		double e = (double)s - expf(target[i]);
		sum += e * e;
		dscore[i] = (float)(2 * weight * e * s);
	}
	sum = block_sum(sum, wide);
	if (threadIdx.x == 0) part[blockIdx.x] = sum;
}
HOST_KERNEL(score_mse)
