// Attention of any number of rows over ragged caches, in float32, split along the
// entries: what decoding, observed rows and learned rows run. No more than a tile
// of logits exists at any time.
#include "attention.h"

// One block: QUERIES queries of KV head blockIdx.y over the entries [z·chunk,
// (z+1)·chunk) of split z = blockIdx.z; the last split also takes the rows' own
// pairs k_own, v_own [rows, kvHeads, dim]. Each lane owns a column of the logits
// and every 32nd element of the output. Writes for query head h and row r, at
// index (z·heads + h)·rows + r: the softmax maximum and sum, and the output [dim]
// before division, where out is not null. N ≥ dim/32.
template <class T, int N, bool CAPPED>
static __device__ __forceinline__ void attend_rows(float *part_max, float *part_sum, float *part_out, const float *q, const Past<T> *past,
                                                   const float *k_own, const float *v_own, const int *from_past, const int *own_from,
                                                   int rows, int heads, int kv_heads, int dim, int chunk, float scale, float cap) {
	DYNAMIC_SHARED(float, shared);
	float *tile = shared, *queries = tile + COLUMNS * (dim + 1), *weights = queries + QUERIES * dim;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int g = blockIdx.y, z = blockIdx.z, group = heads / kv_heads, count = rows * group;
	const int first = blockIdx.x * QUERIES, last = min(first + QUERIES, count) - 1;
	const Past<T> head = past[g];
	const bool own = k_own != nullptr;
	load_queries(queries, q, first, count, g, group, heads, dim, scale);

	Visible see[PER_WARP];
	float top[PER_WARP], sum[PER_WARP], out[PER_WARP][N];
	for (int i = 0; i < PER_WARP; i++) {
		int query = min(first + warp * PER_WARP + i, count - 1); // those past the end are not stored
		see[i] = visible(g, query / group, rows, head.entries, own, from_past, own_from);
		top[i] = -INFINITY;
		sum[i] = 0;
		for (int e = 0; e < N; e++) out[i][e] = 0;
	}
	const Visible earliest = visible(g, first / group, rows, head.entries, own, from_past, own_from);
	const Visible latest = visible(g, last / group, rows, head.entries, own, from_past, own_from);

	for (int part = 0; part < 2; part++) {
		const bool in_past = part == 0;
		if (!in_past && (!own || z + 1 < (int)gridDim.z)) break;
		int from = in_past ? max(z * chunk, earliest.from) : earliest.from_own;
		int to = in_past ? min((z + 1) * chunk, latest.to) : latest.to_own;
		for (int c = from; c < to; c += COLUMNS) {
			int n = min(COLUMNS, to - c);
			__syncthreads(); // the tile and the weights are free
			if (in_past) load_entries(tile, head, head.k, c, n, dim);
			else load_tile(tile, k_own + ((size_t)c * kv_heads + g) * dim, (size_t)kv_heads * dim, n, dim);
			__syncthreads();
			for (int i = 0; i < PER_WARP; i++) {
				int column = c + lane;
				bool seen = lane < n && (in_past ? column >= see[i].from && column < see[i].to : column >= see[i].from_own && column < see[i].to_own);
				float logit = seen ? bounded<CAPPED>(dot(queries + (warp * PER_WARP + i) * dim, tile + lane * (dim + 1), dim), cap) : -INFINITY;
				float m = fmaxf(top[i], warp_max(logit));
				float p = seen ? expf(logit - m) : 0;
				float shrink = m == top[i] ? 1 : expf(top[i] - m);
				weights[(warp * PER_WARP + i) * COLUMNS + lane] = p;
				sum[i] = sum[i] * shrink + warp_sum(p);
				for (int e = 0; e < N; e++) out[i][e] *= shrink;
				top[i] = m;
			}
			if (!part_out) continue;
			__syncthreads(); // the keys have been read, the weights are there
			if (in_past) load_entries(tile, head, head.v, c, n, dim);
			else load_tile(tile, v_own + ((size_t)c * kv_heads + g) * dim, (size_t)kv_heads * dim, n, dim);
			__syncthreads();
#pragma unroll
			for (int i = 0; i < PER_WARP; i++)
#pragma unroll 2 // the binary would be several times as large without a limit
				for (int j = 0; j < COLUMNS; j++) {
					float pj = weights[(warp * PER_WARP + i) * COLUMNS + j];
					for (int e = 0; e < N; e++)
						if (lane + 32 * e < dim) out[i][e] += pj * tile[j * (dim + 1) + lane + 32 * e];
				}
		}
	}
	for (int i = 0; i < PER_WARP; i++) {
		int query = first + warp * PER_WARP + i;
		if (query >= count) continue;
		size_t at = ((size_t)z * heads + g * group + query % group) * rows + query / group;
		if (lane == 0) part_max[at] = top[i], part_sum[at] = sum[i];
		if (!part_out) continue;
		for (int e = 0; e < N; e++)
			if (lane + 32 * e < dim) part_out[at * dim + lane + 32 * e] = out[i][e];
	}
}

#define ATTEND_ROWS(name, T, N)                                                                                                                          \
	extern "C" __global__ void __launch_bounds__(WARPS * 32, 4)                                                                                          \
	name(float *part_max, float *part_sum, float *part_out, const float *q, const Past<T> *past, const float *k_own, const float *v_own,                 \
	     const int *from_past, const int *own_from, int rows, int heads, int kv_heads, int dim, int chunk, float scale) {                                \
		attend_rows<T, N, false>(part_max, part_sum, part_out, q, past, k_own, v_own, from_past, own_from, rows, heads, kv_heads, dim, chunk, scale, 0); \
	}                                                                                                                                                    \
	HOST_KERNEL(name)
#define ATTEND_ROWS_CAPPED(name, T, N)                                                                                                                    \
	extern "C" __global__ void __launch_bounds__(WARPS * 32, 3)                                                                                           \
	name(float *part_max, float *part_sum, float *part_out, const float *q, const Past<T> *past, const float *k_own, const float *v_own,                  \
	     const int *from_past, const int *own_from, int rows, int heads, int kv_heads, int dim, int chunk, float scale, float cap) {                      \
		attend_rows<T, N, true>(part_max, part_sum, part_out, q, past, k_own, v_own, from_past, own_from, rows, heads, kv_heads, dim, chunk, scale, cap); \
	}                                                                                                                                                     \
	HOST_KERNEL(name)
ATTEND_ROWS(attend_rows_f32_4, float, 4)
ATTEND_ROWS(attend_rows_f32_8, float, 8)
ATTEND_ROWS(attend_rows_bf16_8, __nv_bfloat16, 8)
ATTEND_ROWS_CAPPED(attend_rows_capped_f32_8, float, 8)
ATTEND_ROWS_CAPPED(attend_rows_capped_bf16_8, __nv_bfloat16, 8)

// Merges the splits in order: one warp per query head h and row r, which are block
// h·rows + r. out [rows, heads, dim] and lse [heads, rows] may be null.
extern "C" __global__ void __launch_bounds__(32) attend_merge(float *out, float *lse, const float *part_max, const float *part_sum,
                                                              const float *part_out, int rows, int heads, int dim, int splits) {
	const int at = blockIdx.x, total = rows * heads, h = at / rows, r = at % rows;
	float top = -INFINITY, sum = 0;
	for (int z = 0; z < splits; z++) top = fmaxf(top, part_max[(size_t)z * total + at]);
	for (int z = 0; z < splits; z++) {
		float m = part_max[(size_t)z * total + at];
		if (m > -INFINITY) sum += part_sum[(size_t)z * total + at] * expf(m - top);
	}
	if (lse && threadIdx.x == 0) lse[at] = top + logf(sum);
	if (!out) return;
	for (int d = threadIdx.x; d < dim; d += 32) {
		float o = 0;
		for (int z = 0; z < splits; z++) {
			float m = part_max[(size_t)z * total + at];
			if (m > -INFINITY) o += part_out[((size_t)z * total + at) * dim + d] * expf(m - top);
		}
		out[((size_t)r * heads + h) * dim + d] = o / sum;
	}
}
HOST_KERNEL(attend_merge)

// Lets a logit of every head count in a softmax that is done: lse [heads, rows] becomes log(exp(lse) + exp(sink)), and
// out [rows, heads, dim], which may be null, shrinks by what is taken from the entries. sinks [sinks_of]: query heads of
// several sequences, which are rows·heads / sinks_of, have the same. A warp for each head of a row.
extern "C" __global__ void __launch_bounds__(WARPS * 32) attend_sinks(float *out, float *lse, const float *sinks, int rows, int heads, int sinks_of, int dim) {
	const int at = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, r = at / heads, h = at % heads;
	if (r >= rows) return;
	float *z = lse + (size_t)h * rows + r;
	const float before = *z, sink = sinks[h % sinks_of], share = 1 / (1 + expf(sink - before));
	__syncwarp(); // all lanes have it
	if (lane == 0) *z = fmaxf(before, sink) + log1pf(expf(-fabsf(before - sink)));
	if (!out) return;
	for (int d = lane; d < dim; d += 32) out[((size_t)r * heads + h) * dim + d] *= share;
}
HOST_KERNEL(attend_sinks)

// log_score [heads, width] at column j: the logarithm of the mean over rows of the
// probability exp(logit − lse) on entry j, rows that do not see it counting as zero.
// One block takes COLUMNS entries of a KV head; every lane owns one and keeps a
// running maximum and sum down the rows, so that no matrix of rows × entries exists.
template <class T, bool CAPPED>
static __device__ __forceinline__ void observe_rows(float *log_score, const float *lse, const float *q, const Past<T> *past, const int *from_past,
                                                    int own, int rows, int heads, int kv_heads, int dim, int width, float scale, float cap) {
	DYNAMIC_SHARED(float, tile);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = blockIdx.y, group = heads / kv_heads;
	const Past<T> head = past[g];
	const int c = blockIdx.x * COLUMNS, column = c + lane;
	if (c >= head.entries) return;
	load_tile(tile, head.k + (size_t)c * dim, dim, min(COLUMNS, head.entries - c), dim);
	__syncthreads();
	const float *k = tile + lane * (dim + 1);
	for (int h = g * group + warp; h < (g + 1) * group; h += WARPS) {
		float top = -INFINITY, sum = 0;
		for (int r = 0; r < rows; r++) {
			Visible see = visible(g, r, rows, head.entries, own, from_past, nullptr);
			if (see.to <= c || see.from >= c + COLUMNS) continue;
			float x = bounded<CAPPED>(scale * dot(q + ((size_t)r * heads + h) * dim, k, dim), cap) - lse[h * rows + r];
			if (column < see.from || column >= see.to) continue;
			float m = fmaxf(top, x);
			sum = sum * expf(top - m) + expf(x - m);
			top = m;
		}
		if (column < head.entries) log_score[(size_t)h * width + column] = sum > 0 ? top + logf(sum) - logf((float)rows) : -INFINITY;
	}
}
#define OBSERVE_ROWS(name, T)                                                                                              \
	extern "C" __global__ void __launch_bounds__(WARPS * 32, 4)                                                            \
	name(float *log_score, const float *lse, const float *q, const Past<T> *past, const int *from_past, int own, int rows, \
	     int heads, int kv_heads, int dim, int width, float scale) {                                                       \
		observe_rows<T, false>(log_score, lse, q, past, from_past, own, rows, heads, kv_heads, dim, width, scale, 0);      \
	}                                                                                                                      \
	HOST_KERNEL(name)
#define OBSERVE_ROWS_CAPPED(name, T)                                                                                       \
	extern "C" __global__ void __launch_bounds__(WARPS * 32, 4)                                                            \
	name(float *log_score, const float *lse, const float *q, const Past<T> *past, const int *from_past, int own, int rows, \
	     int heads, int kv_heads, int dim, int width, float scale, float cap) {                                            \
		observe_rows<T, true>(log_score, lse, q, past, from_past, own, rows, heads, kv_heads, dim, width, scale, cap);     \
	}                                                                                                                      \
	HOST_KERNEL(name)
OBSERVE_ROWS(observe_rows_f32, float)
OBSERVE_ROWS(observe_rows_bf16, __nv_bfloat16)
OBSERVE_ROWS_CAPPED(observe_rows_capped_f32, float)
OBSERVE_ROWS_CAPPED(observe_rows_capped_bf16, __nv_bfloat16)
