// What a decoding step needs besides the other kernels to be recorded once and
// replayed for every token: its position and the numbers of entries are in device
// memory.
#include "attention.h"

// past [heads] of all layers of all sequences, pos [sequences]: the step's own pairs and
// positions count.
extern "C" __global__ void start_step(Past<float> *past, int *pos, int heads, int sequences) {
	int i = (int)thread_index();
	if (i < heads) past[i].entries++;
	if (i < sequences) pos[i]++;
}
HOST_KERNEL(start_step)

static __device__ __forceinline__ void store(float *at, float v) { *at = v; }
static __device__ __forceinline__ void store(__nv_bfloat16 *at, float v) { *at = __float2bfloat16(v); }

// k, v [heads, dim] become the last entries of the heads of one layer; n = heads·dim.
template <class T>
static __device__ __forceinline__ void append_pairs(const Past<T> *past, const float *k, const float *v, int n, int dim) {
	int i = (int)thread_index();
	if (i >= n) return;
	const Past<T> head = past[i / dim];
	size_t at = (size_t)(head.entries - 1) * dim + i % dim;
	store(const_cast<T *>(head.k) + at, k[i]);
	store(const_cast<T *>(head.v) + at, v[i]);
}
extern "C" __global__ void append_pairs_f32(const Past<float> *past, const float *k, const float *v, int n, int dim) {
	append_pairs(past, k, v, n, dim);
}
extern "C" __global__ void append_pairs_bf16(const Past<__nv_bfloat16> *past, const float *k, const float *v, int n, int dim) {
	append_pairs(past, k, v, n, dim);
}
HOST_KERNEL(append_pairs_f32)
HOST_KERNEL(append_pairs_bf16)
