// What a decoding step does to the heads of its rows between projection and attention.
#include "attention.h"
#include "pointwise.h"

static __device__ __forceinline__ void store(float *at, float v) { *at = v; }
static __device__ __forceinline__ void store(__nv_bfloat16 *at, float v) { *at = __float2bfloat16(v); }

// A block per head and row of q [rows, heads, dim] and k [rows, kv_heads, dim]: its norm,
// where there is a weight [dim], as rms_norm of rows.cu, and its rotation to position
// pos [rows], as rope of elements.cu, with as many threads. Where past is not null, k and v
// of the first sequences become the last entries of theirs, as append_pairs of steps.cu:
// the heads of one layer, those of the next sequence stride after.
template <class T>
static __device__ __forceinline__ void rotate_heads(float *q, float *k, const float *v, const float *q_norm, const float *k_norm, float eps, const int *pos,
                                                    const float *cosines, const float *sines, int heads, int kv_heads, int dim, const Past<T> *past,
                                                    int stride, int sequences, float (&partial)[32]) {
	int h = blockIdx.x, g = h - heads, row = blockIdx.y, half = dim / 2;
	float *x = g < 0 ? q + ((size_t)row * heads + h) * dim : k + ((size_t)row * kv_heads + g) * dim;
	const float *w = g < 0 ? q_norm : k_norm;
	float inv = 1;
	if (w) {
		float s = 0;
#pragma unroll 1 // one or two rounds
		for (int d = threadIdx.x; d < dim; d += blockDim.x) s += x[d] * x[d];
		inv = 1 / sqrtf(block_sum(s, partial) / dim + eps);
	}
	T *keys = nullptr, *values = nullptr;
	if (past && g >= 0 && row < sequences) {
		const Past<T> head = past[(size_t)row * stride + g];
		keys = const_cast<T *>(head.k) + (size_t)(head.entries - 1) * dim;
		values = const_cast<T *>(head.v) + (size_t)(head.entries - 1) * dim;
	}
	size_t angle = (size_t)pos[row] * half;
#pragma unroll 1
	for (int d = threadIdx.x; d < half; d += blockDim.x) {
		float a = x[d], b = x[d + half];
		if (w) a = a * inv * w[d], b = b * inv * w[d + half];
		turn(&a, &b, cosines[angle + d], sines[angle + d]);
		x[d] = a, x[d + half] = b;
		if (keys) store(keys + d, a), store(keys + d + half, b);
	}
	if (values)
#pragma unroll 1
		for (int d = threadIdx.x; d < dim; d += blockDim.x) store(values + d, v[((size_t)row * kv_heads + g) * dim + d]);
}

#define ROTATE_HEADS(name, T)                                                                                                                \
	extern "C" __global__ void name(float *q, float *k, const float *v, const float *q_norm, const float *k_norm, float eps, const int *pos, \
	                                const float *cosines, const float *sines, int heads, int kv_heads, int dim, const Past<T> *past,         \
	                                int stride, int sequences) {                                                                             \
		__shared__ float partial[32];                                                                                                        \
		rotate_heads(q, k, v, q_norm, k_norm, eps, pos, cosines, sines, heads, kv_heads, dim, past, stride, sequences, partial);             \
	}                                                                                                                                        \
	HOST_KERNEL(name)

ROTATE_HEADS(rotate_heads_f32, float)
ROTATE_HEADS(rotate_heads_bf16, __nv_bfloat16)
