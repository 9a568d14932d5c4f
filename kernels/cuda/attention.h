// What the attention kernels share. Query i of KV head g is row i / group of query
// head g·group + i % group.
#pragma once
#include "prims.h"

// The entries that one KV head attends to: rows of k and v [.., dim]. The first ones, or,
// where index is not null, those that it names: only attend_rows takes such.
template <class T> struct Past {
	const T *k, *v;
	const int *index;
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
// rows that follow become zero. Where index is not null it names the rows.
template <class T>
static __device__ __forceinline__ void load_tile(float *tile, const T *src, size_t stride, int count, int dim, const int *index = nullptr) {
	for (int i = threadIdx.x; i < COLUMNS * dim; i += WARPS * 32) {
		int r = i / dim, d = i % dim;
		tile[r * (dim + 1) + d] = r < count ? to_float(src[(index ? index[r] : r) * stride + d]) : 0;
	}
}

// Rows from entry c on of k or v of a head.
template <class T>
static __device__ __forceinline__ void load_entries(float *tile, const Past<T> &head, const T *src, int c, int count, int dim) {
	if (head.index) load_tile(tile, src, dim, count, dim, head.index + c);
	else load_tile(tile, src + (size_t)c * dim, dim, count, dim);
}

// Loads the block's queries into [QUERIES, dim], times factor; those past the end
// become zero. src is [rows, heads, dim].
static __device__ __forceinline__ void load_queries(float *tile, const float *src, int first, int queries, int g, int group, int heads, int dim, float factor) {
	for (int i = threadIdx.x; i < QUERIES * dim; i += WARPS * 32) {
		int q = first + i / dim, d = i % dim;
		tile[i] = q < queries ? factor * src[((size_t)(q / group) * heads + g * group + q % group) * dim + d] : 0;
	}
}

// A logit as the softmax sees it. Kernels of their own are CAPPED, for models that bound logits softly
// (kernels.Attend): cap · tanh(logit / cap), −∞ staying what nothing is seen by.
template <bool CAPPED> static __device__ __forceinline__ float bounded(float logit, float cap) {
	if constexpr (CAPPED) return logit == -INFINITY ? logit : cap * tanhf(logit * (1 / cap));
	else return logit;
}
// Its derivative where it gives `logit`.
static __device__ __forceinline__ float bounded_slope(float logit, float cap) {
	const float share = logit * (1 / cap);
	return 1 - share * share;
}

static __device__ __forceinline__ float dot(const float *a, const float *b, int dim) {
	float s = 0;
	for (int d = 0; d < dim; d++) s += a[d] * b[d];
	return s;
}
