// Floats in an order that integers have, and ranks within a block: what selection and
// sampling share.
#pragma once
#include "prims.h"

// A key that ascends with v: NaN as −Inf, −0 as 0. No key is 0 or ~0.
static __device__ __forceinline__ unsigned order_of(float v) {
	if (v != v) v = -INFINITY;
	if (v == 0) v = 0;
	unsigned u;
	memcpy(&u, &v, 4);
	return u & 0x80000000u ? ~u : u | 0x80000000u;
}
// The number behind a key.
static __device__ __forceinline__ float of_order(unsigned key) {
	key = key & 0x80000000u ? key & 0x7fffffffu : ~key;
	float v;
	memcpy(&v, &key, 4);
	return v;
}

// How many threads before this one, and how many of the block, have either flag.
struct Ranks {
	int first, second, firsts, seconds;
};
static __device__ __forceinline__ Ranks block_ranks(bool first, bool second, int (&counts)[32]) {
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
	unsigned a = __ballot_sync(~0u, first), b = __ballot_sync(~0u, second), below = (1u << lane) - 1;
	if (lane == 0) counts[warp] = __popc(a) << 16 | __popc(b);
	__syncthreads(); // the warps' counts are there
	int before = 0, all = 0;
	for (int w = 0; w < warps; w++) {
		if (w == warp) before = all;
		all += counts[w];
	}
	__syncthreads(); // and have been read
	Ranks r = {(before >> 16) + __popc(a & below), (before & 0xffff) + __popc(b & below), all >> 16, all & 0xffff};
	return r;
}
