// grad_past of attention_grad.cu over caches in bf16, on tensor cores and as exact as in
// float32: queries and dOut are sums of three bf16 numbers, probabilities and gradients
// of logits of two, and what they meet is bf16 as it lies in the cache.
#include "split.h"
#include "tiles.h"

// What grad_past reads of a query head h and row r, which are block h·rows + r: the parts
// [3, rows, heads, dim] of q and dout and, as grad_dots, D. dout and what is made of it may
// be null. One warp.
extern "C" __global__ void __launch_bounds__(32) grad_prepare(__nv_bfloat16 *q_parts, __nv_bfloat16 *dout_parts, float *dots, const float *q,
                                                              const float *dout, const float *out, int rows, int heads, int dim) {
	const size_t at = ((size_t)(blockIdx.x % rows) * heads + blockIdx.x / rows) * dim, n = (size_t)rows * heads * dim;
	float s = 0;
	for (int d = threadIdx.x; d < dim; d += 32) {
		split_three(q_parts + at + d, n, q[at + d]);
		if (!dout) continue;
		split_three(dout_parts + at + d, n, dout[at + d]);
		s += dout[at + d] * out[at + d];
	}
	s = warp_sum(s);
	if (dout && threadIdx.x == 0) dots[blockIdx.x] = s;
}
HOST_KERNEL(grad_prepare)

namespace grad {

constexpr int PARTS = 3;
constexpr int KEYS = 32; // entries of a warp at a time
constexpr int SCORES_PAD = 8; // rows of scores fall in distinct banks
constexpr float LOG2E = 1.4426950408889634f;

// One product of A, which is parts of 16 queries in shared memory, and the 32 entries of
// a warp: s += A · tileᵀ, the small parts first.
template <int DIM>
static __device__ __forceinline__ void multiply(float (&s)[KEYS / 8][4], const __nv_bfloat16 *parts, int part_rows, const __nv_bfloat16 *tile, int lane) {
	constexpr int STRIDE = DIM + 8;
#pragma unroll
	for (int k = 0; k < DIM; k += 16) {
		unsigned b[KEYS / 16][4];
#pragma unroll
		for (int j = 0; j < KEYS / 16; j++) ldmatrix_x4(b[j], tile + (j * 16 + lane % 8 + lane / 16 * 8) * STRIDE + k + lane / 8 % 2 * 8);
#pragma unroll
		for (int p = PARTS - 1; p >= 0; p--) {
			unsigned a[4];
			ldmatrix_x4(a, parts + (p * part_rows + lane % 16) * STRIDE + k + lane / 16 * 8);
#pragma unroll
			for (int j = 0; j < KEYS / 16; j++) {
				unsigned low[2] = {b[j][0], b[j][1]}, high[2] = {b[j][2], b[j][3]};
				mma_bf16_16816(s[2 * j], a, low, s[2 * j]);
				mma_bf16_16816(s[2 * j + 1], a, high, s[2 * j + 1]);
			}
		}
	}
}

// One block: 16 queries for each of query_warps warps of KV head blockIdx.y and the entries
// [z·chunk, (z+1)·chunk) of split z = blockIdx.z. Where the block has several times as many warps they share the tiles of
// entries. q and dout are parts [PARTS, rows, heads, dim]. Writes what grad_past writes;
// dout and dots, or dscore and log_score, may be null.
template <int DIM>
static __device__ __forceinline__ void past(float *part_share, float *part_main, float *part_keys, const __nv_bfloat16 *q,
                                            const Past<__nv_bfloat16> *past, const int *from_past, const float *lse, const __nv_bfloat16 *dout,
                                            const float *dots, const float *log_score, const float *dscore, int width, int rows, int heads,
                                            int kv_heads, int dim, int chunk, int query_warps, float scale) {
	constexpr int STRIDE = DIM + 8;
	DYNAMIC_SHARED(__nv_bfloat16, shared);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = blockIdx.y, z = blockIdx.z, group = heads / kv_heads, count = rows * group;
	const int sharers = blockDim.x / 32 / query_warps, sharer = warp / query_warps, mine = warp % query_warps * 16;
	const int tile_rows = 16 * query_warps, tile = KEYS * sharers;
	const int first = blockIdx.x * tile_rows;
	__nv_bfloat16 *queries = shared, *douts = queries + PARTS * tile_rows * STRIDE, *tiles = douts + PARTS * tile_rows * STRIDE; // per stage: keys, then values
	// Of the upstream gradients and scores of a tile, [stage][2][slots][pitch] for the heads of this block.
	const int slots = min(group, tile_rows), pitch = tile + SCORES_PAD;
	float *scores = reinterpret_cast<float *>(tiles + 2 * 2 * tile * STRIDE);
	const Past<__nv_bfloat16> head = past[g];
	const int begin = max(z * chunk, visible(g, first / group, rows, head.entries, true, from_past, nullptr).from), to = min((z + 1) * chunk, head.entries);

	// A thread copies 16 bytes of every row that it has, and one column of scores.
	const int piece = threadIdx.x % (DIM / 8) * 8, row = threadIdx.x / (DIM / 8), rows_apart = blockDim.x / (DIM / 8);
	const int column = threadIdx.x % tile, slot_begin = threadIdx.x / tile, first_head = first % group;
	auto fetch = [&](int c) {
		const int stage = (c - begin) / tile % 2;
		__nv_bfloat16 *to_keys = tiles + stage * (2 * tile * STRIDE) + row * STRIDE + piece;
#pragma unroll 1 // addresses of several copies at once would take many registers
		for (int r = c + row; r < c + tile; r += rows_apart, to_keys += rows_apart * STRIDE) {
			const bool inside = r < to && piece < dim; // dim is a multiple of 8
			const size_t at = inside ? (size_t)r * dim + piece : 0;
			cp_async_16(to_keys, head.k + at, inside ? 16 : 0);
			if (dout) cp_async_16(to_keys + tile * STRIDE, head.v + at, inside ? 16 : 0);
		}
		float *to_scores = scores + (stage * 2 * slots + slot_begin) * pitch + column;
		const bool inside = dscore && c + column < to; // else nothing has a share
#pragma unroll 1
		for (int s = slot_begin; s < slots; s += query_warps, to_scores += query_warps * pitch) {
			const int h = first_head + s, of = h < group ? h : h - group;
			const size_t at = inside ? (size_t)(g * group + of) * width + c + column : 0;
			cp_async_4(to_scores, (dscore ? dscore : lse) + at, inside ? 4 : 0);
			cp_async_4(to_scores + slots * pitch, (dscore ? log_score : lse) + at, inside ? 4 : 0);
		}
	};
	auto fetch_parts = [&](__nv_bfloat16 *at, const __nv_bfloat16 *src) {
		for (int p = 0; p < PARTS; p++)
			load_rows<DIM>(at + p * tile_rows * STRIDE, tile_rows, count - first, dim, src, [&](int r) {
				int query = first + r;
				return src + (((size_t)p * rows + query / group) * heads + g * group + query % group) * dim;
			});
	};
	fetch_parts(queries, q);
	if (dout) fetch_parts(douts, dout);
	if (begin < to) fetch(begin);
	cp_async_commit();

	// This thread's share of the accumulators, as in attention_mma.cu.
	int from[2];
	float row_lse[2], row_dot[2] = {0, 0}, share_sum[2] = {0, 0}, main[DIM / 8][4] = {}, keys_sum[DIM / 8][4] = {};
	int slot[2];
	const float part_of_mean = 1 / (float)rows, unit = LOG2E * scale;
	for (int half = 0; half < 2; half++) {
		int query = min(first + mine + lane / 4 + half * 8, count - 1), r = query / group, h = g * group + query % group;
		from[half] = visible(g, r, rows, head.entries, true, from_past, nullptr).from;
		row_lse[half] = LOG2E * lse[(size_t)h * rows + r];
		if (dout) row_dot[half] = dots[(size_t)h * rows + r];
		slot[half] = (query - first) % slots;
	}
	const int last_row = min(first + mine + 15, count - 1) / group; // of the warp: no other one sees less
	const int from_last = visible(g, last_row, rows, head.entries, true, from_past, nullptr).from;

	for (int c = begin; c < to; c += tile) {
		if (c + tile < to) fetch(c + tile);
		cp_async_commit();
		cp_async_wait<1>();
		__syncthreads();
		const __nv_bfloat16 *keys = tiles + (c - begin) / tile % 2 * (2 * tile * STRIDE) + sharer * KEYS * STRIDE;
		float p[KEYS / 8][4] = {}, d[KEYS / 8][4] = {};
		multiply<DIM>(p, queries + mine * STRIDE, tile_rows, keys, lane);
		if (dout) multiply<DIM>(d, douts + mine * STRIDE, tile_rows, keys + tile * STRIDE, lane);
		const float *tile_scores = scores + (c - begin) / tile % 2 * (2 * slots * pitch) + sharer * KEYS + lane % 4 * 2;
		auto differentiate = [&](const bool edge) { // p becomes the probability, d the gradient of the logit without T
#pragma unroll
			for (int half = 0; half < 2; half++)
#pragma unroll
				for (int j = 0; j < KEYS / 8; j++) {
					const float *at = tile_scores + slot[half] * pitch + j * 8;
					const float2 upstream = *reinterpret_cast<const float2 *>(at), score = *reinterpret_cast<const float2 *>(at + slots * pitch);
#pragma unroll
					for (int i = 0; i < 2; i++) {
						float &weight = p[j][half * 2 + i], &slope = d[j][half * 2 + i];
						const float log_p = fmaf(unit, weight, -row_lse[half]); // to base 2
						weight = exp2_fast(log_p);
						float share = (i ? upstream.y : upstream.x) * exp2_fast(fmaf(-LOG2E, i ? score.y : score.x, log_p));
						slope = weight * (slope - row_dot[half]);
						if (edge) {
							const int entry = c + sharer * KEYS + j * 8 + lane % 4 * 2 + i;
							if (entry < from[half] || entry >= to) share = weight = slope = 0;
						}
						share_sum[half] += share;
						slope = fmaf(share, part_of_mean, slope);
					}
				}
		};
		const int warp_first = c + sharer * KEYS;
		if (warp_first < from_last || warp_first + KEYS > to) differentiate(true);
		else differentiate(false);
#pragma unroll
		for (int k = 0; k < KEYS / 16; k++) {
			unsigned p_high[4], p_low[4], d_high[4], d_low[4];
			split_fragment(p_high, p_low, p, k);
			split_fragment(d_high, d_low, d, k);
#pragma unroll
			for (int n = 0; n < DIM / 16; n++) {
				unsigned b[4];
				ldmatrix_x4_trans(b, keys + (k * 16 + lane % 16) * STRIDE + n * 16 + lane / 16 * 8);
				unsigned left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
				mma_bf16_16816(main[2 * n], d_low, left, main[2 * n]);
				mma_bf16_16816(main[2 * n + 1], d_low, right, main[2 * n + 1]);
				mma_bf16_16816(keys_sum[2 * n], p_low, left, keys_sum[2 * n]);
				mma_bf16_16816(keys_sum[2 * n + 1], p_low, right, keys_sum[2 * n + 1]);
				mma_bf16_16816(main[2 * n], d_high, left, main[2 * n]);
				mma_bf16_16816(main[2 * n + 1], d_high, right, main[2 * n + 1]);
				mma_bf16_16816(keys_sum[2 * n], p_high, left, keys_sum[2 * n]);
				mma_bf16_16816(keys_sum[2 * n + 1], p_high, right, keys_sum[2 * n + 1]);
			}
		}
		__syncthreads(); // all warps are done with the stage that is filled next
	}
	cp_async_wait<0>(); // the queries, where there was no tile

	// Every warp leaves its results in shared memory, which is free now: two matrices of 16 rows
	// and the shares. Those of warps that share queries are added in order.
	constexpr int LEFT = 2 * 16 * DIM + 16;
	__syncthreads(); // the tiles have been read
	float *left = reinterpret_cast<float *>(shared), *own = left + warp * LEFT;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float *at = own + (lane / 4 + half * 8) * DIM + lane % 4 * 2;
#pragma unroll
		for (int i = 0; i < DIM / 4; i++) at[i / 2 * 8 + i % 2] = main[i / 2][half * 2 + i % 2], at[16 * DIM + i / 2 * 8 + i % 2] = keys_sum[i / 2][half * 2 + i % 2];
		share_sum[half] *= part_of_mean;
		share_sum[half] += __shfl_xor_sync(~0u, share_sum[half], 1);
		share_sum[half] += __shfl_xor_sync(~0u, share_sum[half], 2);
		if (lane % 4 == 0) own[2 * 16 * DIM + lane / 4 + half * 8] = share_sum[half];
	}
	__syncthreads(); // the results are there
	for (int i = threadIdx.x; i < query_warps * LEFT; i += blockDim.x) {
		int of = i / LEFT, element = i % LEFT, matrix = element / (16 * DIM), row = matrix < 2 ? element / DIM % 16 : element % 16;
		int query = first + of * 16 + row, column = element % DIM;
		if (query >= count || (matrix < 2 && column >= dim)) continue;
		float sum = left[i];
		for (int other = 1; other < sharers; other++) sum += left[other * query_warps * LEFT + i];
		size_t at = ((size_t)z * heads + g * group + query % group) * rows + query / group;
		if (matrix == 2) part_share[at] = sum;
		else (matrix ? part_keys : part_main)[at * dim + column] = sum;
	}
}

} // namespace grad

#define GRAD_PAST_MMA(DIM)                                                                                                                  \
	extern "C" __global__ void __launch_bounds__(256, 1)                                                                                     \
	grad_past_mma_##DIM(float *part_share, float *part_main, float *part_keys, const __nv_bfloat16 *q, const Past<__nv_bfloat16> *past,      \
	                    const int *from_past, const float *lse, const __nv_bfloat16 *dout, const float *dots, const float *log_score,       \
	                    const float *dscore, int width, int rows, int heads, int kv_heads, int dim, int chunk, int query_warps, float scale) { \
		grad::past<DIM>(part_share, part_main, part_keys, q, past, from_past, lse, dout, dots, log_score, dscore, width, rows, heads,        \
		                kv_heads, dim, chunk, query_warps, scale);                                                                           \
	}                                                                                                                                        \
	HOST_KERNEL(grad_past_mma_##DIM)
GRAD_PAST_MMA(64)
GRAD_PAST_MMA(128)
