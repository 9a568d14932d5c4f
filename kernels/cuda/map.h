// Operations on every element by itself, over tensors of float32.
#pragma once
#include "prims.h"

enum { VECTORS = 4, SPAN = 256 * 4 * VECTORS }; // as in kernels.go: vectors of a thread, elements of a block

static __device__ __forceinline__ void put4(float *y, float4 v) { *reinterpret_cast<float4 *>(y) = v; }
static __device__ __forceinline__ void put4(__nv_bfloat16 *y, float4 v) { *reinterpret_cast<uint2 *>(y) = uint2{pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)}; }

// y[j][i] = result j of f, of element i of every input x. What such a kernel waits for is memory: a
// thread asks for VECTORS vectors of four elements of every input before it uses any. At the end, and where
// tensors don't begin at whole vectors, it takes one element after the other. An output may be an input.
template <int IN, int OUT, class Y, class F>
static __device__ __forceinline__ void map(Y *const (&y)[OUT], const float *const (&x)[IN], size_t n, F f) {
	const size_t first = (size_t)blockIdx.x * SPAN;
	size_t places = 0;
#pragma unroll
	for (int k = 0; k < IN; k++) places |= (size_t)x[k];
#pragma unroll
	for (int j = 0; j < OUT; j++) places |= (size_t)y[j] * (4 / sizeof(Y)); // vectors of the output are as long
	if (first + SPAN > n || places % 16) {
#pragma unroll 1
		for (size_t i = first + threadIdx.x; i < n && i < first + SPAN; i += blockDim.x) {
			float in[IN], out[OUT];
#pragma unroll
			for (int k = 0; k < IN; k++) in[k] = x[k][i];
			f(out, in);
#pragma unroll
			for (int j = 0; j < OUT; j++) put(y[j] + i, out[j]);
		}
		return;
	}
	float4 v[VECTORS][IN];
#pragma unroll
	for (int i = 0; i < VECTORS; i++)
#pragma unroll
		for (int k = 0; k < IN; k++) v[i][k] = *reinterpret_cast<const float4 *>(x[k] + first + 4 * (i * 256 + threadIdx.x));
#pragma unroll
	for (int i = 0; i < VECTORS; i++) {
		float in[4][IN], out[4][OUT];
#pragma unroll
		for (int k = 0; k < IN; k++) in[0][k] = v[i][k].x, in[1][k] = v[i][k].y, in[2][k] = v[i][k].z, in[3][k] = v[i][k].w;
#pragma unroll
		for (int e = 0; e < 4; e++) f(out[e], in[e]);
#pragma unroll
		for (int j = 0; j < OUT; j++) put4(y[j] + first + 4 * (i * 256 + threadIdx.x), float4{out[0][j], out[1][j], out[2][j], out[3][j]});
	}
}
