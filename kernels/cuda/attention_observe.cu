// Observed rows over caches in bf16, on tensor cores and as exact as in float32: a
// query is the sum of three bf16 numbers and a probability of two, and what they meet
// is bf16 as it lies in the cache. Two sweeps: the first gives every split's softmax
// and output, attend_merge joins them, and the second gives the scores, which need the
// whole softmax. Keys come from memory once and, for the second sweep, from the cache
// of the chip as long as they fit in it.
#include "split.h"
#include "tiles.h"

namespace observe {

constexpr int PARTS = 3;
constexpr int ROWS = 64;         // queries of a block of the first sweep: 16 per warp
constexpr int KEYS = 32;         // entries of a tile of the first sweep
constexpr int TILE = 16;         // queries at a time of the second sweep
constexpr int SCORE_WARPS = 8;   // of a block of the second sweep: 16 entries each
constexpr int ENTRIES = SCORE_WARPS * 16;

// First sweep, cut like attend_rows: one block has ROWS queries of KV head blockIdx.y and
// the entries [z·chunk, (z+1)·chunk) of split z = blockIdx.z; own tells that the rows are
// not among the entries, which each of them then sees. parts [PARTS, rows, heads, dim].
// Writes what attend_rows writes; part_out may be null.
template <int DIM>
static __device__ __forceinline__ void attend(float *part_max, float *part_sum, float *part_out, const __nv_bfloat16 *parts, const Past<__nv_bfloat16> *past,
                                              const int *from_past, int own, int rows, int heads, int kv_heads, int dim, int chunk, float scale) {
	constexpr int STRIDE = DIM + 8;
	DYNAMIC_SHARED(__nv_bfloat16, shared);
	__nv_bfloat16 *queries = shared, *tiles = queries + PARTS * ROWS * STRIDE; // per stage: keys, then values
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = blockIdx.y, z = blockIdx.z, group = heads / kv_heads, count = rows * group;
	const int first = blockIdx.x * ROWS, last = min(first + ROWS, count) - 1;
	const Past<__nv_bfloat16> head = past[g];
	const int begin = max(z * chunk, visible(g, first / group, rows, head.entries, own, from_past, nullptr).from);
	const int to = min((z + 1) * chunk, visible(g, last / group, rows, head.entries, own, from_past, nullptr).to);

	auto fetch = [&](int c) {
		__nv_bfloat16 *at = tiles + (c - begin) / KEYS % 2 * (2 * KEYS * STRIDE);
		load_rows<DIM>(at, KEYS, to - c, dim, head.k, [&](int r) { return head.k + (size_t)(c + r) * dim; });
		if (part_out) load_rows<DIM>(at + KEYS * STRIDE, KEYS, to - c, dim, head.v, [&](int r) { return head.v + (size_t)(c + r) * dim; });
	};
	for (int p = 0; p < PARTS; p++)
		load_rows<DIM>(queries + p * ROWS * STRIDE, ROWS, count - first, dim, parts, [&](int r) {
			int query = first + r;
			return parts + (((size_t)p * rows + query / group) * heads + g * group + query % group) * dim;
		});
	if (begin < to) fetch(begin);
	cp_async_commit();

	// This thread's share of the accumulators, as in attention_mma.cu.
	Visible see[2];
	float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, acc[DIM / 8][4] = {};
	for (int half = 0; half < 2; half++)
		see[half] = visible(g, min(first + warp * 16 + lane / 4 + half * 8, count - 1) / group, rows, head.entries, own, from_past, nullptr);

	for (int c = begin; c < to; c += KEYS) {
		if (c + KEYS < to) fetch(c + KEYS);
		cp_async_commit();
		cp_async_wait<1>();
		__syncthreads();
		const __nv_bfloat16 *keys = tiles + (c - begin) / KEYS % 2 * (2 * KEYS * STRIDE), *values = keys + KEYS * STRIDE;
		float s[KEYS / 8][4] = {};
#pragma unroll
		for (int k = 0; k < DIM; k += 16) {
			unsigned b[KEYS / 16][4];
#pragma unroll
			for (int j = 0; j < KEYS / 16; j++) ldmatrix_x4(b[j], keys + (j * 16 + lane % 8 + lane / 16 * 8) * STRIDE + k + lane / 8 % 2 * 8);
#pragma unroll
			for (int p = PARTS - 1; p >= 0; p--) { // the small ones first
				unsigned a[4];
				ldmatrix_x4(a, queries + (p * ROWS + warp * 16 + lane % 16) * STRIDE + k + lane / 16 * 8);
#pragma unroll
				for (int j = 0; j < KEYS / 16; j++) {
					unsigned low[2] = {b[j][0], b[j][1]}, high[2] = {b[j][2], b[j][3]};
					mma_bf16_16816(s[2 * j], a, low, s[2 * j]);
					mma_bf16_16816(s[2 * j + 1], a, high, s[2 * j + 1]);
				}
			}
		}
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float largest = top[half];
#pragma unroll
			for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					int column = c + j * 8 + lane % 4 * 2 + e;
					float &x = s[j][half * 2 + e];
					x = column >= see[half].from && column < see[half].to && column < to ? x * scale : -INFINITY;
					largest = fmaxf(largest, x);
				}
			largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1)); // the four lanes of a row
			largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
			float base = largest == -INFINITY ? 0 : largest, shrink = expf(top[half] - base); // nothing seen yet
			top[half] = largest;
			sum[half] *= shrink;
#pragma unroll
			for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					float &x = s[j][half * 2 + e];
					x = expf(x - base);
					sum[half] += x;
				}
			if (!part_out) continue;
#pragma unroll
			for (int n = 0; n < DIM / 8; n++) acc[n][half * 2] *= shrink, acc[n][half * 2 + 1] *= shrink;
		}
		if (part_out) {
#pragma unroll
			for (int k = 0; k < KEYS / 16; k++) {
				unsigned high[4], low[4];
				split_fragment(high, low, s, k);
#pragma unroll
				for (int n = 0; n < DIM / 16; n++) {
					unsigned b[4];
					ldmatrix_x4_trans(b, values + (k * 16 + lane % 16) * STRIDE + n * 16 + lane / 16 * 8);
					unsigned left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
					mma_bf16_16816(acc[2 * n], low, left, acc[2 * n]);
					mma_bf16_16816(acc[2 * n + 1], low, right, acc[2 * n + 1]);
					mma_bf16_16816(acc[2 * n], high, left, acc[2 * n]);
					mma_bf16_16816(acc[2 * n + 1], high, right, acc[2 * n + 1]);
				}
			}
		}
		__syncthreads(); // all warps are done with the stage that is filled next
	}
	cp_async_wait<0>(); // the queries, where there was no tile
#pragma unroll
	for (int half = 0; half < 2; half++) {
		sum[half] += __shfl_xor_sync(~0u, sum[half], 1);
		sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
		int query = first + warp * 16 + lane / 4 + half * 8;
		if (query >= count) continue;
		size_t at = ((size_t)z * heads + g * group + query % group) * rows + query / group;
		if (lane % 4 == 0) part_max[at] = top[half], part_sum[at] = sum[half];
		if (!part_out) continue;
#pragma unroll
		for (int n = 0; n < DIM / 8; n++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				int d = n * 8 + lane % 4 * 2 + e;
				if (d < dim) part_out[at * dim + d] = acc[n][half * 2 + e];
			}
	}
}

// Second sweep: log_score as observe_rows gives it. One block has ENTRIES entries of KV head
// blockIdx.y, every warp 16 of them, whose fragments stay in registers while the queries
// of one head after the other pass by. A lane keeps a running maximum and sum for its
// columns down its rows.
template <int DIM>
static __device__ __forceinline__ void scores(float *log_score, const float *lse, const __nv_bfloat16 *parts, const Past<__nv_bfloat16> *past,
                                              const int *from_past, int own, int rows, int heads, int kv_heads, int dim, int width, float scale) {
	constexpr int STRIDE = DIM + 8;
	DYNAMIC_SHARED(__nv_bfloat16, shared);
	__nv_bfloat16 *keys = shared, *stages = keys + ENTRIES * STRIDE; // per stage: the parts of TILE queries
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = blockIdx.y, group = heads / kv_heads, c = blockIdx.x * ENTRIES;
	const Past<__nv_bfloat16> head = past[g];
	if (c >= head.entries) return;
	const int unseeing = own ? 0 : max(0, c - head.entries + rows); // rows before them see none of these entries
	const int first_tile = unseeing / TILE, row_tiles = (rows + TILE - 1) / TILE - first_tile, tiles = row_tiles * group;

	auto fetch = [&](int t) {
		int r0 = (first_tile + t % row_tiles) * TILE, h = g * group + t / row_tiles;
		for (int p = 0; p < PARTS; p++)
			load_rows<DIM>(stages + (t % 2 * PARTS + p) * TILE * STRIDE, TILE, rows - r0, dim, parts,
			          [&](int r) { return parts + (((size_t)p * rows + r0 + r) * heads + h) * dim; });
	};
	load_rows<DIM>(keys, ENTRIES, head.entries - c, dim, head.k, [&](int r) { return head.k + (size_t)(c + r) * dim; });
	fetch(0);
	cp_async_commit();

	unsigned b[DIM / 16][4];
	float top[4], sum[4]; // of columns 8·(i/2) + 2·(lane%4) + i%2 of the warp's 16
	for (int t = 0; t < tiles; t++) {
		if (t + 1 < tiles) fetch(t + 1);
		cp_async_commit();
		cp_async_wait<1>();
		__syncthreads();
		if (t == 0) {
#pragma unroll
			for (int k = 0; k < DIM / 16; k++) ldmatrix_x4(b[k], keys + (warp * 16 + lane % 8 + lane / 16 * 8) * STRIDE + k * 16 + lane / 8 % 2 * 8);
		}
		const __nv_bfloat16 *queries = stages + t % 2 * (PARTS * TILE * STRIDE);
		float s[2][4] = {};
#pragma unroll
		for (int k = 0; k < DIM / 16; k++)
#pragma unroll
			for (int p = PARTS - 1; p >= 0; p--) {
				unsigned a[4], low[2] = {b[k][0], b[k][1]}, high[2] = {b[k][2], b[k][3]};
				ldmatrix_x4(a, queries + (p * TILE + lane % 16) * STRIDE + k * 16 + lane / 16 * 8);
				mma_bf16_16816(s[0], a, low, s[0]);
				mma_bf16_16816(s[1], a, high, s[1]);
			}
		__syncthreads(); // all warps are done with the stage that is filled next
		const int h = g * group + t / row_tiles;
		if (t % row_tiles == 0) // a head begins
			for (int i = 0; i < 4; i++) top[i] = -INFINITY, sum[i] = 0;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int r = (first_tile + t % row_tiles) * TILE + lane / 4 + half * 8;
			if (r >= rows) continue;
			Visible see = visible(g, r, rows, head.entries, own, from_past, nullptr);
			float row_lse = lse[(size_t)h * rows + r];
#pragma unroll
			for (int i = 0; i < 4; i++) {
				int column = c + warp * 16 + i / 2 * 8 + lane % 4 * 2 + i % 2;
				if (column < see.from || column >= see.to) continue;
				float x = scale * s[i / 2][half * 2 + i % 2] - row_lse, m = fmaxf(top[i], x);
				sum[i] = sum[i] * expf(top[i] - m) + expf(x - m);
				top[i] = m;
			}
		}
		if ((t + 1) % row_tiles) continue;
#pragma unroll
		for (int i = 0; i < 4; i++) { // the head's rows lie in eight lanes
			float m = top[i], total = sum[i];
			for (int d = 4; d < 32; d *= 2) {
				float other_top = __shfl_xor_sync(~0u, m, d), other = __shfl_xor_sync(~0u, total, d), larger = fmaxf(m, other_top);
				float base = larger == -INFINITY ? 0 : larger;
				total = total * expf(m - base) + other * expf(other_top - base);
				m = larger;
			}
			int column = c + warp * 16 + i / 2 * 8 + lane % 4 * 2 + i % 2;
			if (lane < 4 && column < head.entries) log_score[(size_t)h * width + column] = total > 0 ? m + logf(total) - logf((float)rows) : -INFINITY;
		}
	}
}

} // namespace observe

#define OBSERVE(DIM)                                                                                                                         \
	extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                                                 \
	observe_attend_##DIM(float *part_max, float *part_sum, float *part_out, const __nv_bfloat16 *parts, const Past<__nv_bfloat16> *past,      \
	                     const int *from_past, int own, int rows, int heads, int kv_heads, int dim, int chunk, float scale) {                \
		observe::attend<DIM>(part_max, part_sum, part_out, parts, past, from_past, own, rows, heads, kv_heads, dim, chunk, scale);           \
	}                                                                                                                                        \
	HOST_KERNEL(observe_attend_##DIM)                                                                                                        \
	extern "C" __global__ void __launch_bounds__(observe::SCORE_WARPS * 32, 2)                                                                \
	observe_scores_##DIM(float *log_score, const float *lse, const __nv_bfloat16 *parts, const Past<__nv_bfloat16> *past, const int *from_past, \
	                     int own, int rows, int heads, int kv_heads, int dim, int width, float scale) {                                      \
		observe::scores<DIM>(log_score, lse, parts, past, from_past, own, rows, heads, kv_heads, dim, width, scale);                         \
	}                                                                                                                                        \
	HOST_KERNEL(observe_scores_##DIM)
OBSERVE(64)
OBSERVE(128)
OBSERVE(256)
