// Decoding steps that choose what they attend to: the choice is prepared on the host with
// queries at a place of their own, which are copied there when the step's pair is
// appended.
#include "attention.h"

static __device__ __forceinline__ void store(float *at, float v) { *at = v; }
static __device__ __forceinline__ void store(__nv_bfloat16 *at, float v) { *at = __float2bfloat16(v); }

// k, v [n/dim, dim] become the last entries of the heads of one layer, and the queries
// from [queries] are copied to to.
template <class T>
static __device__ __forceinline__ void append_step(const Past<T> *past, const float *k, const float *v, float *to, const float *from, int n, int queries, int dim) {
	int i = (int)thread_index();
	if (i < queries) to[i] = from[i];
	if (i >= n) return;
	const Past<T> head = past[i / dim];
	size_t at = (size_t)(head.entries - 1) * dim + i % dim;
	store(const_cast<T *>(head.k) + at, k[i]);
	store(const_cast<T *>(head.v) + at, v[i]);
}
extern "C" __global__ void append_step_f32(const Past<float> *past, const float *k, const float *v, float *to, const float *from, int n, int queries, int dim) {
	append_step(past, k, v, to, from, n, queries, dim);
}
extern "C" __global__ void append_step_bf16(const Past<__nv_bfloat16> *past, const float *k, const float *v, float *to, const float *from, int n, int queries, int dim) {
	append_step(past, k, v, to, from, n, queries, dim);
}
HOST_KERNEL(append_step_f32)
HOST_KERNEL(append_step_bf16)
