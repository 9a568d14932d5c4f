// Attention of many rows - a prompt's chunk - over caches in bf16, on tensor cores:
// queries and probabilities are rounded to bf16, sums are float32. Tiles of keys and
// values arrive by asynchronous copies while the tile before them is used.
#include "attention.h"

namespace mma {

constexpr int ROWS = 64; // queries of a block: 16 per warp

// Starts the copy of count rows of src into a tile of KEYS rows of DIM + 8 elements.
// What lies outside becomes zero; its address stays in range all the same. dim is a
// multiple of 8, so a 16-byte chunk lies wholly inside a row or outside.
template <int DIM, int KEYS>
static __device__ __forceinline__ void load(__nv_bfloat16 *tile, const __nv_bfloat16 *src, int count, int dim) {
	for (int i = threadIdx.x; i < KEYS * (DIM / 8); i += WARPS * 32) {
		int r = i / (DIM / 8), d = i % (DIM / 8) * 8;
		bool inside = r < count && d < dim;
		cp_async_16(tile + r * (DIM + 8) + d, inside ? src + (size_t)r * dim + d : src, inside ? 16 : 0);
	}
}

// One block: ROWS queries of KV head blockIdx.y, which are the last entries of the
// head. out [rows, heads, dim] and lse [heads, rows] may be null.
template <int DIM, int KEYS, bool CAPPED>
static __device__ __forceinline__ void attend(float *out, float *lse, const float *q, const Past<__nv_bfloat16> *past, const int *from_past,
                                              int rows, int heads, int kv_heads, int dim, float scale, float cap) {
	constexpr int STRIDE = DIM + 8; // rows of a fragment fall in distinct banks
	DYNAMIC_SHARED(__nv_bfloat16, shared);
	__nv_bfloat16 *queries = shared, *tiles = queries + ROWS * STRIDE; // per stage: keys, then values
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = blockIdx.y, group = heads / kv_heads, count = rows * group;
	const int first = blockIdx.x * ROWS, last = min(first + ROWS, count) - 1;
	const Past<__nv_bfloat16> head = past[g];
	const int from = visible(g, first / group, rows, head.entries, false, from_past, nullptr).from / KEYS * KEYS;
	const int to = visible(g, last / group, rows, head.entries, false, from_past, nullptr).to;

	auto stage = [&](int s) { return tiles + s % 2 * (2 * KEYS * STRIDE); };
	auto fetch = [&](int c) {
		__nv_bfloat16 *at = stage((c - from) / KEYS);
		load<DIM, KEYS>(at, head.k + (size_t)c * dim, min(KEYS, to - c), dim);
		if (out) load<DIM, KEYS>(at + KEYS * STRIDE, head.v + (size_t)c * dim, min(KEYS, to - c), dim);
	};
	if (from < to) fetch(from);
	cp_async_commit();
	for (int i = threadIdx.x; i < ROWS * DIM; i += WARPS * 32) {
		int query = first + i / DIM, d = i % DIM;
		bool inside = query < count && d < dim;
		queries[i / DIM * STRIDE + d] = __float2bfloat16(inside ? q[((size_t)(query / group) * heads + g * group + query % group) * dim + d] : 0);
	}

	// This thread's share of the accumulators: rows lane/4 and lane/4 + 8 of the warp's
	// 16, columns 2·(lane%4) and the next one of every 8.
	Visible see[2];
	float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, acc[DIM / 8][4] = {};
	for (int half = 0; half < 2; half++)
		see[half] = visible(g, min(first + warp * 16 + lane / 4 + half * 8, count - 1) / group, rows, head.entries, false, from_past, nullptr);

	for (int c = from; c < to; c += KEYS) {
		if (c + KEYS < to) fetch(c + KEYS);
		cp_async_commit(); // also when nothing is left to fetch, so that one group in flight is always the next tile
		cp_async_wait<1>();
		__syncthreads();
		const __nv_bfloat16 *keys = stage((c - from) / KEYS), *values = keys + KEYS * STRIDE;
		float s[KEYS / 8][4] = {};
#pragma unroll
		for (int k = 0; k < DIM; k += 16) {
			unsigned a[4];
			ldmatrix_x4(a, queries + (warp * 16 + lane % 16) * STRIDE + k + lane / 16 * 8);
#pragma unroll
			for (int j = 0; j < KEYS / 16; j++) {
				unsigned b[4];
				ldmatrix_x4(b, keys + (j * 16 + lane % 8 + lane / 16 * 8) * STRIDE + k + lane / 8 % 2 * 8);
				unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
				mma_bf16_16816(s[2 * j], a, low, s[2 * j]);
				mma_bf16_16816(s[2 * j + 1], a, high, s[2 * j + 1]);
			}
		}
		float largest[2] = {top[0], top[1]};
#pragma unroll
		for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				int column = c + j * 8 + lane % 4 * 2 + e % 2;
				bool seen = column >= see[e / 2].from && column < see[e / 2].to;
				s[j][e] = seen ? bounded<CAPPED>(s[j][e] * scale, cap) : -INFINITY;
				largest[e / 2] = fmaxf(largest[e / 2], s[j][e]);
			}
		float base[2], shrink[2];
#pragma unroll
		for (int half = 0; half < 2; half++) { // the four lanes of a row
			largest[half] = fmaxf(largest[half], __shfl_xor_sync(~0u, largest[half], 1));
			largest[half] = fmaxf(largest[half], __shfl_xor_sync(~0u, largest[half], 2));
			base[half] = largest[half] == -INFINITY ? 0 : largest[half]; // nothing seen yet
			shrink[half] = expf(top[half] - base[half]);
			top[half] = largest[half];
			sum[half] *= shrink[half];
		}
#pragma unroll
		for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				s[j][e] = expf(s[j][e] - base[e / 2]);
				sum[e / 2] += s[j][e];
			}
		if (out) {
#pragma unroll
			for (int n = 0; n < DIM / 8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++) acc[n][e] *= shrink[e / 2];
#pragma unroll
			for (int k = 0; k < KEYS / 16; k++) { // the accumulators of s are laid out like an A fragment
				unsigned p[4] = {pack_bf16(s[2 * k][0], s[2 * k][1]), pack_bf16(s[2 * k][2], s[2 * k][3]),
				                 pack_bf16(s[2 * k + 1][0], s[2 * k + 1][1]), pack_bf16(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
				for (int n = 0; n < DIM / 16; n++) {
					unsigned b[4];
					ldmatrix_x4_trans(b, values + (k * 16 + lane % 16) * STRIDE + n * 16 + lane / 16 * 8);
					unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
					mma_bf16_16816(acc[2 * n], p, low, acc[2 * n]);
					mma_bf16_16816(acc[2 * n + 1], p, high, acc[2 * n + 1]);
				}
			}
		}
		__syncthreads(); // all warps are done with the stage that is filled next
	}
#pragma unroll
	for (int half = 0; half < 2; half++) {
		sum[half] += __shfl_xor_sync(~0u, sum[half], 1);
		sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
		int query = first + warp * 16 + lane / 4 + half * 8;
		if (query >= count) continue;
		int r = query / group, h = g * group + query % group;
		if (lse && lane % 4 == 0) lse[(size_t)h * rows + r] = top[half] + logf(sum[half]);
		if (!out) continue;
#pragma unroll
		for (int n = 0; n < DIM / 8; n++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				int d = n * 8 + lane % 4 * 2 + e;
				if (d < dim) out[((size_t)r * heads + h) * dim + d] = acc[n][half * 2 + e] / sum[half];
			}
	}
}

} // namespace mma

#define ATTEND_MMA(DIM, KEYS)                                                                                                             \
	extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                                              \
	attend_mma_##DIM(float *out, float *lse, const float *q, const Past<__nv_bfloat16> *past, const int *from_past, int rows, int heads,  \
	                 int kv_heads, int dim, float scale) {                                                                                \
		mma::attend<DIM, KEYS, false>(out, lse, q, past, from_past, rows, heads, kv_heads, dim, scale, 0);                                \
	}                                                                                                                                     \
	HOST_KERNEL(attend_mma_##DIM)                                                                                                         \
	extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                                              \
	attend_mma_capped_##DIM(float *out, float *lse, const float *q, const Past<__nv_bfloat16> *past, const int *from_past, int rows,      \
	                        int heads, int kv_heads, int dim, float scale, float cap) {                                                   \
		mma::attend<DIM, KEYS, true>(out, lse, q, past, from_past, rows, heads, kv_heads, dim, scale, cap);                               \
	}                                                                                                                                     \
	HOST_KERNEL(attend_mma_capped_##DIM)
ATTEND_MMA(64, 64)
ATTEND_MMA(128, 64)
ATTEND_MMA(256, 32)
