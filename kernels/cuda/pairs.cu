// Keys and values on their way into a cache.
#include "prims.h"

static __device__ __forceinline__ void put8(float *y, float4 a, float4 b) { reinterpret_cast<float4 *>(y)[0] = a, reinterpret_cast<float4 *>(y)[1] = b; }
static __device__ __forceinline__ void put8(__nv_bfloat16 *y, float4 a, float4 b) {
	*reinterpret_cast<uint4 *>(y) = uint4{pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)};
}

// k, v [rows, heads, dim] become rows of every head: to[h] [rows, dim] of keys and
// to[heads + h] of values. Blocks (row, z): a thread has eight elements of a head that follow each
// other, or fewer, one after the other, where heads don't begin or end at whole vectors.
template <class T>
static __device__ __forceinline__ void copy_pairs(const unsigned long long *to, const float *k, const float *v, int heads, int dim) {
	const unsigned pieces = (dim + 7) / 8, i = blockIdx.y * blockDim.x + threadIdx.x;
	const int head = i / pieces, d = (i - head * pieces) * 8;
	if (head >= heads) return;
	const size_t from = ((size_t)blockIdx.x * heads + head) * dim + d;
	T *keys = (T *)to[head] + (size_t)blockIdx.x * dim + d, *values = (T *)to[heads + head] + (size_t)blockIdx.x * dim + d;
	k += from, v += from;
	if (dim % 8 == 0 && ((size_t)k | (size_t)v | (size_t)keys | (size_t)values) % 16 == 0) {
		const float4 *a = reinterpret_cast<const float4 *>(k), *b = reinterpret_cast<const float4 *>(v);
		const float4 k0 = a[0], k1 = a[1], v0 = b[0], v1 = b[1];
		put8(keys, k0, k1), put8(values, v0, v1);
		return;
	}
#pragma unroll 1
	for (int e = 0; e < 8 && d + e < dim; e++) put(keys + e, k[e]), put(values + e, v[e]);
}
extern "C" __global__ void copy_pairs_f32(const unsigned long long *to, const float *k, const float *v, int heads, int dim) {
	copy_pairs<float>(to, k, v, heads, dim);
}
extern "C" __global__ void copy_pairs_bf16(const unsigned long long *to, const float *k, const float *v, int heads, int dim) {
	copy_pairs<__nv_bfloat16>(to, k, v, heads, dim);
}
HOST_KERNEL(copy_pairs_f32)
HOST_KERNEL(copy_pairs_bf16)
