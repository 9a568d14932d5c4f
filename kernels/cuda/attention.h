// What the attention kernels share. Query i of KV head g is row i / group of query
// head g·group + i % group.
#pragma once
#include "prims.h"

// The entries that one KV head keeps: k, v [entries, dim].
template <class T> struct Past {
	const T *k, *v;
	int entries, unused;
};

// Which pairs a row sees: entries [from, to) of the past and own pairs
// [from_own, to_own). Both ends ascend with the row. from_past [kvHeads, rows] and
// own_from [rows] are there with a sliding window only.
struct Visible {
	int from, to, from_own, to_own;
};
static __device__ __forceinline__ Visible visible(int g, int r, int rows, int entries, bool own, const int *from_past, const int *own_from) {
	Visible v;
	v.to = own ? entries : max(0, entries - (rows - 1 - r));
	v.from = from_past ? min(from_past[g * rows + r], v.to) : 0;
	v.to_own = own ? r + 1 : 0;
	v.from_own = own_from && own ? own_from[r] : 0;
	return v;
}

constexpr int COLUMNS = 32; // of a tile: one per lane
constexpr int WARPS = 4;    // of a block
constexpr int PER_WARP = 4; // queries
constexpr int QUERIES = WARPS * PER_WARP;

// Copies count rows of src, stride elements apart, into tile rows of dim + 1 floats
// (the odd stride keeps lanes that read one column of 32 rows in 32 banks); the
// rows that follow become zero.
template <class T>
static __device__ __forceinline__ void load_tile(float *tile, const T *src, size_t stride, int count, int dim) {
	for (int i = threadIdx.x; i < COLUMNS * dim; i += WARPS * 32) {
		int r = i / dim, d = i % dim;
		tile[r * (dim + 1) + d] = r < count ? to_float(src[r * stride + d]) : 0;
	}
}

// Loads the block's queries into [QUERIES, dim], times factor; those past the end
// become zero. src is [rows, heads, dim].
static __device__ __forceinline__ void load_queries(float *tile, const float *src, int first, int queries, int g, int group, int heads, int dim, float factor) {
	for (int i = threadIdx.x; i < QUERIES * dim; i += WARPS * 32) {
		int q = first + i / dim, d = i % dim;
		tile[i] = q < queries ? factor * src[((size_t)(q / group) * heads + g * group + q % group) * dim + d] : 0;
	}
}

static __device__ __forceinline__ float dot(const float *a, const float *b, int dim) {
	float s = 0;
	for (int d = 0; d < dim; d++) s += a[d] * b[d];
	return s;
}
