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
