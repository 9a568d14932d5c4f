// Keys and values on their way into a cache.
#include "prims.h"

// k, v [rows, heads, dim] become rows of every head: to[h] [rows, dim] of keys and
// to[heads + h] of values; n = rows·heads·dim.
template <class T>
static __device__ __forceinline__ void copy_pairs(const unsigned long long *to, const float *k, const float *v, size_t n, int heads, int dim) {
	size_t i = thread_index();
	if (i >= n) return;
	size_t head = i / dim % heads, at = i / dim / heads * dim + i % dim;
	put((T *)to[head] + at, k[i]);
	put((T *)to[heads + head] + at, v[i]);
}
extern "C" __global__ void copy_pairs_f32(const unsigned long long *to, const float *k, const float *v, size_t n, int heads, int dim) {
	copy_pairs<float>(to, k, v, n, heads, dim);
}
extern "C" __global__ void copy_pairs_bf16(const unsigned long long *to, const float *k, const float *v, size_t n, int heads, int dim) {
	copy_pairs<__nv_bfloat16>(to, k, v, n, heads, dim);
}
HOST_KERNEL(copy_pairs_f32)
HOST_KERNEL(copy_pairs_bf16)
