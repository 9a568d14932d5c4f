// Sums of numbers whose logarithms are given.
#pragma once
#include "prims.h"

// The logarithm of the mean of the numbers whose logarithms are x[0], x[step], …: no less
// than −FLT_MAX.
static __device__ __forceinline__ float log_mean(const float *x, size_t step, int n) {
	const float least = -3.402823466e38f;
	float top = least, sum = 0;
	for (int i = 0; i < n; i++) top = fmaxf(top, x[i * step]);
	for (int i = 0; i < n; i++) sum += expf(x[i * step] - top);
	return fmaxf(least, top + logf(sum / (float)n));
}
