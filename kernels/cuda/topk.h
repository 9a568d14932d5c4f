// The k-th largest of a row by digits of its order: what selections share.
#pragma once
#include "order.h"
#include "prims.h"

// Counts of one digit of the keys, and what was found in them.
struct Digits {
	int bins[256];
	int digit, left;
};

// The digit in which the k-th largest key lies, with k counted from 1, and k within it.
// Warp 0 looks: every lane has eight digits.
static __device__ __forceinline__ void find_digit(Digits &d, int k) {
	int lane = threadIdx.x;
	if (lane < 32) {
		int own = 0;
		for (int i = 0; i < 8; i++) own += d.bins[255 - 8 * lane - i];
		int sum = own;
		for (int step = 1; step < 32; step *= 2) {
			int below = __shfl_up_sync(~0u, sum, step);
			if (lane >= step) sum += below;
		}
		int before = sum - own;
		if (before < k && k <= sum)
			for (int i = 255 - 8 * lane;; i--) {
				if (k <= before + d.bins[i]) {
					d.digit = i, d.left = k - before;
					break;
				}
				before += d.bins[i];
			}
	}
	__syncthreads(); // the digit is known, and the counts have been read
}

// The key of the k-th largest of x [n], 1 ≤ k ≤ n, and how many of those with this key
// are among the k largest.
static __device__ __forceinline__ unsigned kth_largest(const float *x, int n, int k, int *ties, Digits &d) {
	unsigned prefix = 0;
	for (int shift = 24; shift >= 0; shift -= 8) {
		for (int i = threadIdx.x; i < 256; i += blockDim.x) d.bins[i] = 0;
		__syncthreads(); // the digits are zero
		for (int i = threadIdx.x; i < n; i += blockDim.x) {
			unsigned key = order_of(x[i]);
			if (shift == 24 || key >> (shift + 8) == prefix) atomicAdd(&d.bins[key >> shift & 255], 1);
		}
		__syncthreads(); // the digits are counted
		find_digit(d, k);
		prefix = prefix << 8 | (unsigned)d.digit, k = d.left;
	}
	*ties = k;
	return prefix;
}
