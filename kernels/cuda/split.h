// Numbers as sums of bf16 numbers.
#pragma once
#include "prims.h"

// Writes v to y[0], y[n] and y[2·n]: three bf16 parts whose sum is v to float32's own precision.
static __device__ __forceinline__ void split_three(__nv_bfloat16 *y, size_t n, float v) {
	for (int part = 0; part < 3; part++) {
		__nv_bfloat16 high = __float2bfloat16(v);
		y[part * n] = high;
		v -= __bfloat162float(high);
	}
}

// Columns 16·k to 16·k + 15 of accumulators, which are laid out like A fragments, as two bf16
// parts.
template <int N>
static __device__ __forceinline__ void split_fragment(unsigned (&high)[4], unsigned (&low)[4], const float (&s)[N][4], int k) {
#pragma unroll
	for (int i = 0; i < 4; i++) {
		float a = s[2 * k + i / 2][i % 2 * 2], b = s[2 * k + i / 2][i % 2 * 2 + 1];
		high[i] = pack_bf16(a, b);
		unsigned bits[2] = {high[i] << 16, high[i] & 0xffff0000u};
		float rounded[2];
		memcpy(rounded, bits, 8);
		low[i] = pack_bf16(a - rounded[0], b - rounded[1]);
	}
}
