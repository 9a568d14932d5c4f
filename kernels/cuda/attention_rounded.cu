// Many observed rows over caches in bf16: their queries are rounded to bf16 as those of a
// prompt are, output and softmax come from the kernels for prompts, and one sweep over the
// keys gives the scores of the same rounded queries.
#include "tiles.h"

// joined [g]: the entries of past[g] and, in bf16 behind them, the rows' own pairs k_own and
// v_own [rows, kv_heads, dim]. One thread for 8 elements, which dim is a multiple of.
// blockIdx.y is the head, blockIdx.z whether the values are meant.
extern "C" __global__ void join_pairs(const Past<__nv_bfloat16> *joined, const Past<__nv_bfloat16> *past, const float *k_own, const float *v_own,
                                      int kv_heads, int dim) {
	const int g = blockIdx.y;
	const Past<__nv_bfloat16> head = past[g], whole = joined[g];
	const bool values = blockIdx.z > 0;
	size_t i = thread_index() * 8, before = (size_t)head.entries * dim;
	if (i >= (size_t)whole.entries * dim) return;
	uint4 v;
	if (i < before) {
		v = *reinterpret_cast<const uint4 *>((values ? head.v : head.k) + i);
	} else {
		size_t row = (i - before) / dim, d = (i - before) % dim;
		const float *x = (values ? v_own : k_own) + (row * kv_heads + g) * dim + d;
		v = {pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7])};
	}
	*reinterpret_cast<uint4 *>(const_cast<__nv_bfloat16 *>(values ? whole.v : whole.k) + i) = v;
}
HOST_KERNEL(join_pairs)

namespace rounded {

constexpr int TILE = 64; // queries at a time
constexpr int WARPS = 8;
constexpr float NOTHING = -1e30f; // below all logarithms of probabilities

// The logarithm to base 2 of a sum, as a reference and a sum relative to it.
struct LogSum {
	float base, sum;
	__device__ __forceinline__ void add(const LogSum &other) {
		float top = fmaxf(base, other.base);
		sum = sum * exp2f(base - top) + other.sum * exp2f(other.base - top);
		base = top;
	}
};

// log_score as observe_rows gives it, for queries q [rows, heads, dim] in bf16. Every warp has
// SPAN entries of KV head blockIdx.y, whose fragments stay in registers while the queries of
// one head after the other pass by. A lane sums probabilities of its columns down its rows,
// relative to one of them, which it changes where another is larger by 2^64: that takes one
// exponential for each pair, and no score is too small.
template <int DIM, int SPAN>
static __device__ __forceinline__ void scores(float *log_score, const float *lse, const __nv_bfloat16 *q, const Past<__nv_bfloat16> *past,
                                              const int *from_past, int own, int rows, int heads, int kv_heads, int dim, int width, float scale) {
	constexpr int STRIDE = DIM + 8, COLUMNS = SPAN / 4; // of a lane
	DYNAMIC_SHARED(__nv_bfloat16, stages);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = blockIdx.y, group = heads / kv_heads, c = blockIdx.x * WARPS * SPAN;
	const Past<__nv_bfloat16> head = past[g];
	if (c >= head.entries) return;
	const float unit = scale * 1.4426950408889634f; // logits in powers of two
	const int unseeing = own ? 0 : max(0, c - head.entries + rows); // rows before them see none of these entries
	const int blind = visible(g, 0, rows, head.entries, own, from_past, nullptr).from >= c + WARPS * SPAN; // nor do any
	const int first_tile = unseeing / TILE, row_tiles = (rows + TILE - 1) / TILE - first_tile, tiles = row_tiles * group;

	const int start = c + warp * SPAN + lane % 4 * 2; // column i of a lane is start + i / 2 * 8 + i % 2
	auto write = [&](int h, int i, float value) {
		int column = start + i / 2 * 8 + i % 2;
		if (lane < 4 && column < head.entries) log_score[(size_t)h * width + column] = value;
	};
	if (blind) {
#pragma unroll 1
		for (int h = g * group; h < (g + 1) * group; h++)
#pragma unroll 1
			for (int i = 0; i < COLUMNS; i++) write(h, i, -INFINITY);
		return;
	}
	__shared__ float row_lse[TILE]; // of a tile's rows, to base 2
	float next_lse = 0;             // of the next tile, in the first threads
	auto fetch = [&](int t) {
		int r0 = (first_tile + t % row_tiles) * TILE, h = g * group + t / row_tiles;
		load_rows<DIM>(stages + t % 2 * TILE * STRIDE, TILE, rows - r0, dim, q, [&](int r) { return q + ((size_t)(r0 + r) * heads + h) * dim; });
		if (threadIdx.x < TILE && (int)threadIdx.x < rows - r0) next_lse = lse[(size_t)h * rows + r0 + threadIdx.x] * 1.4426950408889634f;
	};
	fetch(0);
	cp_async_commit();
	unsigned b[DIM / 16][SPAN / 8][2];
#pragma unroll
	for (int k = 0; k < DIM / 16; k++)
#pragma unroll
		for (int j = 0; j < SPAN / 8; j++)
#pragma unroll
			for (int i = 0; i < 2; i++) {
				int entry = c + warp * SPAN + j * 8 + lane / 4, d = k * 16 + i * 8 + lane % 4 * 2;
				b[k][j][i] = entry < head.entries && d < dim ? *reinterpret_cast<const unsigned *>(head.k + (size_t)entry * dim + d) : 0;
			}

	// From row `seeing` on rows see the entries of the warp to the last one.
	const int warp_first = c + warp * SPAN, seeing = head.entries < warp_first + SPAN ? rows : own ? 0 : warp_first + SPAN - head.entries + rows - 1;
	LogSum sums[COLUMNS];
	float limits[COLUMNS]; // base + 64
	for (int t = 0; t < tiles; t++) {
		if (threadIdx.x < TILE) row_lse[threadIdx.x] = next_lse;
		if (t + 1 < tiles) fetch(t + 1);
		cp_async_commit();
		cp_async_wait<1>();
		__syncthreads();
		const __nv_bfloat16 *queries = stages + t % 2 * (TILE * STRIDE);
		const int h = g * group + t / row_tiles, r0 = (first_tile + t % row_tiles) * TILE;
		if (t % row_tiles == 0) // a head begins
#pragma unroll
			for (int i = 0; i < COLUMNS; i++) sums[i] = {NOTHING, 0}, limits[i] = NOTHING + 64;
#pragma unroll 1
		for (int from = 0; from < TILE && r0 + from < rows; from += 16) {
			float s[SPAN / 8][4] = {};
#pragma unroll
			for (int k = 0; k < DIM / 16; k++) {
				unsigned a[4];
				ldmatrix_x4(a, queries + (from + lane % 16) * STRIDE + k * 16 + lane / 16 * 8);
#pragma unroll
				for (int j = 0; j < SPAN / 8; j++) mma_bf16_16816(s[j], a, b[k][j], s[j]);
			}
			const int last = r0 + from + 15;
			const bool edge = last - 15 < seeing || last >= rows || (from_past && from_past[g * rows + last] > warp_first);
#pragma unroll
			for (int half = 0; half < 2; half++) {
				const int of = from + lane / 4 + half * 8;
				bool higher = false;
#pragma unroll
				for (int i = 0; i < COLUMNS; i++) {
					float &x = s[i / 2][half * 2 + i % 2];
					x = unit * x - row_lse[of];
				}
				if (edge) {
					const int r = r0 + of;
					const Visible see = visible(g, min(r, rows - 1), rows, head.entries, own, from_past, nullptr);
					const int first = see.from - start, end = r < rows ? see.to - start : 0;
#pragma unroll
					for (int i = 0; i < COLUMNS; i++)
						if (i / 2 * 8 + i % 2 < first || i / 2 * 8 + i % 2 >= end) s[i / 2][half * 2 + i % 2] = -INFINITY;
				}
#pragma unroll
				for (int i = 0; i < COLUMNS; i++) higher |= s[i / 2][half * 2 + i % 2] > limits[i];
				if (higher) // seldom but for the first one
#pragma unroll
					for (int i = 0; i < COLUMNS; i++) {
						float x = s[i / 2][half * 2 + i % 2];
						if (x > sums[i].base + 64) sums[i] = {x, sums[i].sum * exp2_fast(sums[i].base - x)}, limits[i] = x + 64;
					}
#pragma unroll
				for (int i = 0; i < COLUMNS; i++) sums[i].sum += exp2_fast(s[i / 2][half * 2 + i % 2] - sums[i].base);
			}
		}
		__syncthreads(); // all warps are done with the stage that is filled next
		if ((t + 1) % row_tiles) continue;
#pragma unroll
		for (int i = 0; i < COLUMNS; i++) { // the head's rows lie in eight lanes
			LogSum all = sums[i];
#pragma unroll 1
			for (int d = 4; d < 32; d *= 2) all.add({__shfl_xor_sync(~0u, all.base, d), __shfl_xor_sync(~0u, all.sum, d)});
			write(h, i, all.sum == 0 ? -INFINITY : all.base * 0.69314718055994531f + logf(all.sum) - logf((float)rows));
		}
	}
}

} // namespace rounded

#define ROUNDED_SCORES(DIM, SPAN, BLOCKS)                                                                                                   \
	extern "C" __global__ void __launch_bounds__(rounded::WARPS * 32, BLOCKS)                                                                \
	rounded_scores_##DIM(float *log_score, const float *lse, const __nv_bfloat16 *q, const Past<__nv_bfloat16> *past, const int *from_past, \
	                     int own, int rows, int heads, int kv_heads, int dim, int width, float scale) {                                     \
		rounded::scores<DIM, SPAN>(log_score, lse, q, past, from_past, own, rows, heads, kv_heads, dim, width, scale);                       \
	}                                                                                                                                        \
	HOST_KERNEL(rounded_scores_##DIM)
ROUNDED_SCORES(64, 32, 2)
ROUNDED_SCORES(128, 24, 2)
