// Rows in bf16 as rows in f16, for products with weights in f16. Their 8 bits fit into f16's 11, their exponents do
// not: a power of two for all rows brings the largest finite number to [2^14, 2^15), and the product takes it back.
// A number 2^28 times smaller than the largest is subnormal, and loses at most 2^-39 of the largest.
#include "prims.h"

enum { VECTORS = 4, SPAN = 256 * 8 * VECTORS, PARTS = 1024 }; // elements of a block's turn, most blocks of largest_bf16

static __device__ __forceinline__ float of_bits(unsigned bf16) { return __uint_as_float(bf16 << 16); }

// The magnitude of a number, 0 of what is not finite.
static __device__ __forceinline__ float finite_magnitude(unsigned bf16) {
	const unsigned magnitude = bf16 & 0x7fff;
	return magnitude < 0x7f80 ? of_bits(magnitude) : 0;
}

// largest [blocks] = the largest magnitude among the elements of x [n] that a block has.
extern "C" __global__ void largest_bf16(float *largest, const unsigned short *x, size_t n) {
	__shared__ float partial[32];
	float top = 0;
#pragma unroll 1
	for (size_t first = (size_t)blockIdx.x * SPAN; first < n; first += (size_t)gridDim.x * SPAN) {
		if (first + SPAN > n || (size_t)x % 16) {
#pragma unroll 1
			for (size_t i = first + threadIdx.x; i < n && i < first + SPAN; i += blockDim.x) top = fmaxf(top, finite_magnitude(x[i]));
			continue;
		}
		uint4 v[VECTORS];
#pragma unroll
		for (int i = 0; i < VECTORS; i++) v[i] = *reinterpret_cast<const uint4 *>(x + first + 8 * (i * 256 + threadIdx.x));
#pragma unroll
		for (int i = 0; i < VECTORS; i++) {
			const unsigned words[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
			for (int j = 0; j < 4; j++) top = fmaxf(top, fmaxf(finite_magnitude(words[j]), finite_magnitude(words[j] >> 16)));
		}
	}
	top = block_max(top, partial);
	if (threadIdx.x == 0) largest[blockIdx.x] = top;
}
HOST_KERNEL(largest_bf16)

// y [n] = x · 2^e, and factors [2] = alpha · 2^-e and beta, by the magnitudes of so many parts of x.
extern "C" __global__ void scale_f16(__half *y, float *factors, const unsigned short *x, const float *largest, int parts, float alpha, float beta, size_t n) {
	__shared__ float partial[32];
	float top = 0;
	for (int i = threadIdx.x; i < parts; i += blockDim.x) top = fmaxf(top, largest[i]);
	top = block_max(top, partial);
	const int e = top > 0 ? min(141 - (int)(__float_as_uint(top) >> 23), 126) : 0; // both powers are normal numbers
	const float power = __uint_as_float((unsigned)(127 + e) << 23);
	if (blockIdx.x == 0 && threadIdx.x == 0) factors[0] = alpha * __uint_as_float((unsigned)(127 - e) << 23), factors[1] = beta;
	const size_t first = (size_t)blockIdx.x * SPAN;
	if (first + SPAN > n || ((size_t)x | (size_t)y) % 16) {
#pragma unroll 1
		for (size_t i = first + threadIdx.x; i < n && i < first + SPAN; i += blockDim.x) y[i] = __float2half_rn(of_bits(x[i]) * power);
		return;
	}
	uint4 v[VECTORS];
#pragma unroll
	for (int i = 0; i < VECTORS; i++) v[i] = *reinterpret_cast<const uint4 *>(x + first + 8 * (i * 256 + threadIdx.x));
#pragma unroll
	for (int i = 0; i < VECTORS; i++) {
		const unsigned words[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
		__half half[8];
#pragma unroll
		for (int j = 0; j < 4; j++) {
			half[2 * j] = __float2half_rn(of_bits(words[j] & 0xffff) * power);
			half[2 * j + 1] = __float2half_rn(of_bits(words[j] >> 16) * power);
		}
		uint4 packed;
		memcpy(&packed, half, 16);
		*reinterpret_cast<uint4 *>(y + first + 8 * (i * 256 + threadIdx.x)) = packed;
	}
}
HOST_KERNEL(scale_f16)
