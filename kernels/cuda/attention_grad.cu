// The gradient of attention and of observed scores for rows with own pairs. With
// p = exp(logit − lse), D = dOut · out and, where scores have a gradient,
//   share_j = dLogScore_j · exp(logit_j − lse − logScore_j) / rows,  T = Σ share,
// the gradient of a logit is p · (dOut·v − D − T) + share. So
//   dq = scale · (Σ (p · (dOut·v − D) + share) · k − T · Σ p · k)
// needs one pass over the past. Own pairs follow when T is known.
#include "attention.h"

// D [heads, rows] of dout, out [rows, heads, dim]: one warp each.
extern "C" __global__ void __launch_bounds__(32) grad_dots(float *dots, const float *dout, const float *out, int rows, int heads, int dim) {
	size_t at = ((size_t)(blockIdx.x % rows) * heads + blockIdx.x / rows) * dim;
	float s = 0;
	for (int d = threadIdx.x; d < dim; d += 32) s += dout[at + d] * out[at + d];
	s = warp_sum(s);
	if (threadIdx.x == 0) dots[blockIdx.x] = s;
}
HOST_KERNEL(grad_dots)

// The same cut as attend_rows. Writes at index (z·heads + h)·rows + r the sums of
// split z: of shares, of (p·(dOut·v − D) + share) · k [dim], and of p · k [dim].
// dout and dots, or dscore and log_score, may be null.
template <class T, int N, bool CAPPED>
static __device__ __forceinline__ void grad_past(float *part_share, float *part_main, float *part_keys, const float *q, const Past<T> *past,
                                                 const int *from_past, const float *lse, const float *dout, const float *dots,
                                                 const float *log_score, const float *dscore, int width,
                                                 int rows, int heads, int kv_heads, int dim, int chunk, float scale, float cap) {
	DYNAMIC_SHARED(float, shared);
	float *keys = shared, *values = keys + COLUMNS * (dim + 1), *queries = values + COLUMNS * (dim + 1), *douts = queries + QUERIES * dim, *slopes = douts + QUERIES * dim, *weights = slopes + QUERIES * COLUMNS;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int g = blockIdx.y, z = blockIdx.z, group = heads / kv_heads, count = rows * group;
	const int first = blockIdx.x * QUERIES;
	const Past<T> head = past[g];
	load_queries(queries, q, first, count, g, group, heads, dim, scale);
	if (dout) load_queries(douts, dout, first, count, g, group, heads, dim, 1);

	float share_sum[PER_WARP], main[PER_WARP][N], key_sum[PER_WARP][N];
	for (int i = 0; i < PER_WARP; i++) {
		share_sum[i] = 0;
		for (int e = 0; e < N; e++) main[i][e] = key_sum[i][e] = 0;
	}
	int to = min((z + 1) * chunk, head.entries);
	for (int c = z * chunk; c < to; c += COLUMNS) {
		int n = min(COLUMNS, to - c);
		__syncthreads(); // the tiles are free
		load_tile(keys, head.k + (size_t)c * dim, dim, n, dim);
		if (dout) load_tile(values, head.v + (size_t)c * dim, dim, n, dim);
		__syncthreads();
		for (int i = 0; i < PER_WARP; i++) {
			int slot = warp * PER_WARP + i, query = min(first + slot, count - 1), r = query / group, h = g * group + query % group;
			Visible see = visible(g, r, rows, head.entries, true, from_past, nullptr);
			int column = c + lane;
			bool seen = lane < n && column >= see.from && column < see.to;
			float p = 0, share = 0, d = 0;
			if (seen) {
				float logit = bounded<CAPPED>(dot(queries + slot * dim, keys + lane * (dim + 1), dim), cap), log_p = logit - lse[h * rows + r];
				p = expf(log_p);
				if (dscore) share = dscore[(size_t)h * width + column] * expf(log_p - log_score[(size_t)h * width + column]) / rows;
				d = share;
				if (dout) d += p * (dot(douts + slot * dim, values + lane * (dim + 1), dim) - dots[h * rows + r]);
				if constexpr (CAPPED) d *= bounded_slope(logit, cap), p *= bounded_slope(logit, cap);
			}
			share_sum[i] += warp_sum(share);
			slopes[slot * COLUMNS + lane] = d;
			weights[slot * COLUMNS + lane] = p;
			__syncwarp();
#pragma unroll 2
			for (int j = 0; j < COLUMNS; j++) {
				float dj = slopes[slot * COLUMNS + j], pj = weights[slot * COLUMNS + j];
				for (int e = 0; e < N; e++)
					if (lane + 32 * e < dim) {
						float k = keys[j * (dim + 1) + lane + 32 * e];
						main[i][e] += dj * k;
						key_sum[i][e] += pj * k;
					}
			}
		}
	}
	for (int i = 0; i < PER_WARP; i++) {
		int query = first + warp * PER_WARP + i;
		if (query >= count) continue;
		size_t at = ((size_t)z * heads + g * group + query % group) * rows + query / group;
		if (lane == 0) part_share[at] = share_sum[i];
		for (int e = 0; e < N; e++)
			if (lane + 32 * e < dim) part_main[at * dim + lane + 32 * e] = main[i][e], part_keys[at * dim + lane + 32 * e] = key_sum[i][e];
	}
}
#define GRAD_PAST(name, T, N)                                                                                                                \
	extern "C" __global__ void __launch_bounds__(WARPS * 32, 4)                                                                              \
	name(float *part_share, float *part_main, float *part_keys, const float *q, const Past<T> *past, const int *from_past, const float *lse, \
	     const float *dout, const float *dots, const float *log_score, const float *dscore, int width, int rows, int heads, int kv_heads,    \
	     int dim, int chunk, float scale) {                                                                                                  \
		grad_past<T, N, false>(part_share, part_main, part_keys, q, past, from_past, lse, dout, dots, log_score, dscore, width, rows, heads, \
		                kv_heads, dim, chunk, scale, 0);                                                                                     \
	}                                                                                                                                        \
	HOST_KERNEL(name)
#define GRAD_PAST_CAPPED(name, T, N)                                                                                                         \
	extern "C" __global__ void __launch_bounds__(WARPS * 32, 3)                                                                              \
	name(float *part_share, float *part_main, float *part_keys, const float *q, const Past<T> *past, const int *from_past, const float *lse, \
	     const float *dout, const float *dots, const float *log_score, const float *dscore, int width, int rows, int heads, int kv_heads,    \
	     int dim, int chunk, float scale, float cap) {                                                                                       \
		grad_past<T, N, true>(part_share, part_main, part_keys, q, past, from_past, lse, dout, dots, log_score, dscore, width, rows, heads,  \
		                kv_heads, dim, chunk, scale, cap);                                                                                   \
	}                                                                                                                                        \
	HOST_KERNEL(name)
GRAD_PAST(grad_past_f32_4, float, 4)
GRAD_PAST(grad_past_f32_8, float, 8)
// For what attention_grad_mma.cu does not take: heads of odd sizes, few queries.
GRAD_PAST(grad_past_bf16_8, __nv_bfloat16, 8)
GRAD_PAST_CAPPED(grad_past_capped_f32_8, float, 8)
GRAD_PAST_CAPPED(grad_past_capped_bf16_8, __nv_bfloat16, 8)

constexpr int PAIRS = 32; // own pairs, or queries, at a time: four threads each
constexpr int OWN_THREADS = 4 * PAIRS;
constexpr int PER_THREAD = 256 / OWN_THREADS; // elements of a head

// The dot product by four threads beside each other, which all get it.
static __device__ __forceinline__ float quad_dot(const float *a, const float *b, int dim) {
	float s = 0;
#pragma unroll 8
	for (int d = threadIdx.x % 4; d < dim; d += 4) s += a[d] * b[d];
	s += __shfl_xor_sync(~0u, s, 1);
	return s + __shfl_xor_sync(~0u, s, 2);
}

// What the two kernels for own pairs share: p of a query on an own pair, and the
// gradient of that logit, or of what the cap bounds.
template <bool CAPPED>
static __device__ __forceinline__ float own_logit_grad(float *p, const float *q, const float *k, const float *dout, const float *v,
                                                       float lse, float dot_out, float share, int dim, float scale, float cap) {
	const float logit = bounded<CAPPED>(scale * quad_dot(q, k, dim), cap);
	*p = expf(logit - lse);
	float slope = *p * ((dout ? quad_dot(dout, v, dim) - dot_out : 0) - share);
	if constexpr (CAPPED) slope *= bounded_slope(logit, cap);
	return slope;
}

// dq [rows, heads, dim] from the splits, in order, and the own pairs; T [heads, rows]
// for grad_own. A block per query head h and row r, which are block h·rows + r.
template <bool CAPPED>
static __device__ __forceinline__ void grad_query_of(float *dq, float *shares, const float *part_share, const float *part_main, const float *part_keys,
                                                                     const float *q, const float *k_own, const float *v_own, const int *own_from, const float *lse,
                                                                     const float *dout, const float *dots, int splits, int rows, int heads, int kv_heads, int dim, float scale, float cap) {
	__shared__ float slopes[PAIRS];
	const int at = blockIdx.x, thread = threadIdx.x, total = rows * heads, h = at / rows, r = at % rows, g = h / (heads / kv_heads);
	const size_t query = ((size_t)r * heads + h) * dim;
	float share = 0, sum[PER_THREAD] = {};
	for (int z = 0; z < splits; z++) share += part_share[(size_t)z * total + at];
	if (thread == 0) shares[at] = share;
	for (int j0 = own_from ? own_from[r] : 0; j0 <= r; j0 += PAIRS) {
		int n = min(PAIRS, r + 1 - j0);
		size_t pair = ((size_t)min(j0 + thread / 4, r) * kv_heads + g) * dim;
		float p, slope = own_logit_grad<CAPPED>(&p, q + query, k_own + pair, dout ? dout + query : nullptr, dout ? v_own + pair : nullptr, lse[at],
		                                dout ? dots[at] : 0, share, dim, scale, cap);
		if (thread % 4 == 0) slopes[thread / 4] = slope;
		__syncthreads(); // the slopes are there
#pragma unroll
		for (int e = 0; e < PER_THREAD; e++)
			if (thread + OWN_THREADS * e < dim)
#pragma unroll 8
				for (int j = 0; j < n; j++) sum[e] += slopes[j] * k_own[((size_t)(j0 + j) * kv_heads + g) * dim + thread + OWN_THREADS * e];
		__syncthreads(); // the slopes have been read
	}
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++)
		if (thread + OWN_THREADS * e < dim) {
			float main = 0, keys = 0;
#pragma unroll 8
			for (int z = 0; z < splits; z++) {
				main += part_main[((size_t)z * total + at) * dim + thread + OWN_THREADS * e];
				keys += part_keys[((size_t)z * total + at) * dim + thread + OWN_THREADS * e];
			}
			dq[query + thread + OWN_THREADS * e] = scale * (main - share * keys + sum[e]);
		}
}
#define GRAD_QUERY_PARAMETERS                                                                                                              \
	float *dq, float *shares, const float *part_share, const float *part_main, const float *part_keys, const float *q, const float *k_own, \
		const float *v_own, const int *own_from, const float *lse, const float *dout, const float *dots, int splits, int rows, int heads,  \
		int kv_heads, int dim, float scale
#define GRAD_QUERY(CAPPED, CAP)                                                                                                                    \
	grad_query_of<CAPPED>(dq, shares, part_share, part_main, part_keys, q, k_own, v_own, own_from, lse, dout, dots, splits, rows, heads, kv_heads, \
	                      dim, scale, CAP)
extern "C" __global__ void __launch_bounds__(OWN_THREADS) grad_query(GRAD_QUERY_PARAMETERS) { GRAD_QUERY(false, 0); }
extern "C" __global__ void __launch_bounds__(OWN_THREADS) grad_query_capped(GRAD_QUERY_PARAMETERS, float cap) { GRAD_QUERY(true, cap); }
HOST_KERNEL(grad_query)
HOST_KERNEL(grad_query_capped)

// dk and dv [rows, kvHeads, dim] of own pair j of KV head g, which are block
// j·kvHeads + g: sums over the queries that see it, in order. dv and dout may be
// null; without dout dv becomes zero.
template <bool CAPPED>
static __device__ __forceinline__ void grad_own_of(float *dk, float *dv, const float *q, const float *k_own, const float *v_own, const int *own_from,
                                                                   const float *lse, const float *dout, const float *dots, const float *shares,
                                                                   int rows, int heads, int kv_heads, int dim, float scale, float cap) {
	__shared__ float slopes[PAIRS], weights[PAIRS];
	const int j = blockIdx.x / kv_heads, g = blockIdx.x % kv_heads, group = heads / kv_heads, thread = threadIdx.x;
	const size_t pair = ((size_t)j * kv_heads + g) * dim;
	int last = rows; // the first row that does not see the pair any more
	for (int r = j; own_from && r < last; r++)
		if (own_from[r] > j) last = r; // ascends with r
	float sum_k[PER_THREAD] = {}, sum_v[PER_THREAD] = {};
	for (int first = j * group; first < last * group; first += PAIRS) { // queries as in attention.h
		int n = min(PAIRS, last * group - first), i = min(first + thread / 4, last * group - 1), r = i / group, h = g * group + i % group;
		size_t query = ((size_t)r * heads + h) * dim;
		float p, slope = own_logit_grad<CAPPED>(&p, q + query, k_own + pair, dout ? dout + query : nullptr, dout ? v_own + pair : nullptr,
		                                lse[h * rows + r], dout ? dots[h * rows + r] : 0, shares[h * rows + r], dim, scale, cap);
		if (thread % 4 == 0) slopes[thread / 4] = slope, weights[thread / 4] = p;
		__syncthreads(); // slopes and weights are there
#pragma unroll 4
		for (int i = 0; i < n; i++) {
			size_t query = ((size_t)((first + i) / group) * heads + g * group + (first + i) % group) * dim;
#pragma unroll
			for (int e = 0; e < PER_THREAD; e++)
				if (thread + OWN_THREADS * e < dim) {
					sum_k[e] += slopes[i] * q[query + thread + OWN_THREADS * e];
					if (dout) sum_v[e] += weights[i] * dout[query + thread + OWN_THREADS * e];
				}
		}
		__syncthreads(); // slopes and weights have been read
	}
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++)
		if (thread + OWN_THREADS * e < dim) {
			dk[pair + thread + OWN_THREADS * e] = scale * sum_k[e];
			if (dv) dv[pair + thread + OWN_THREADS * e] = sum_v[e];
		}
}
#define GRAD_OWN_PARAMETERS                                                                                                                 \
	float *dk, float *dv, const float *q, const float *k_own, const float *v_own, const int *own_from, const float *lse, const float *dout, \
		const float *dots, const float *shares, int rows, int heads, int kv_heads, int dim, float scale
#define GRAD_OWN(CAPPED, CAP) \
	grad_own_of<CAPPED>(dk, dv, q, k_own, v_own, own_from, lse, dout, dots, shares, rows, heads, kv_heads, dim, scale, CAP)
extern "C" __global__ void __launch_bounds__(OWN_THREADS) grad_own(GRAD_OWN_PARAMETERS) { GRAD_OWN(false, 0); }
extern "C" __global__ void __launch_bounds__(OWN_THREADS) grad_own_capped(GRAD_OWN_PARAMETERS, float cap) { GRAD_OWN(true, cap); }
HOST_KERNEL(grad_own)
HOST_KERNEL(grad_own_capped)
