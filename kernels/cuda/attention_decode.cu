// Attention of decoding: one row of each of some sequences over ragged caches, or over
// entries that a list names. What it costs is reading keys and values once: every lane
// keeps its own copies of 16 bytes in flight, in a ring in shared memory that no other
// lane touches, and no barrier stands between a warp and its next tile. Arithmetic is
// float32. With eight queries of a KV head that would take longer than memory does: there tensor
// cores multiply queries, as sums of three bf16 numbers, by keys in bf16, whose pieces all
// lanes of a warp read.
#include "attention.h"

namespace decode {

constexpr int STEP_WARPS = 4; // of a block; they take turns at tiles
constexpr int STAGES = 3;     // of the ring
constexpr int SLOTS = 4;      // rows of a tile that a lane takes part in

// Elements of 16 bytes as float32.
static __device__ __forceinline__ void widen(float (&x)[8], uint4 v) {
	const unsigned pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
	for (int i = 0; i < 4; i++) {
		x[2 * i] = __uint_as_float(pairs[i] << 16); // bf16 is the upper half of a float
		x[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000u);
	}
}
static __device__ __forceinline__ void widen(float (&x)[4], uint4 v) {
	x[0] = __uint_as_float(v.x), x[1] = __uint_as_float(v.y), x[2] = __uint_as_float(v.z), x[3] = __uint_as_float(v.w);
}

// Products of a tile's keys with eight queries, by the tensor cores of a warp. Keys are rows of LANES pieces of 16
// bytes: eight of 16 pieces, or 16 of eight. A lane ends with the products of one row, with two queries or four.
template <int LANES> struct Tensor {
	static constexpr int STEPS = LANES / 2, PARTS = 3; // of 16 elements; parts of a query
	unsigned parts[PARTS][STEPS][2];

	// The row of a lane, and the first of its queries.
	static __device__ __forceinline__ int row(int lane) { return LANES == 16 ? lane / 4 : lane / 4 + lane % 4 / 2 * 8; }
	static __device__ __forceinline__ int query(int lane) { return LANES == 16 ? lane % 4 * 2 : lane % 2 * 4; }
	// Where a piece lies in its row: the same piece of eight rows is read at once, from as many parts of shared memory.
	static __device__ __forceinline__ int place(int row, int piece) { return piece ^ row % 8; }

	// Queries [count, dim], times scale.
	__device__ __forceinline__ void set(const float *q, int count, int dim, float scale, int lane) {
		const int column = lane / 4, i = LANES == 16 ? column : (column & 1) | (column & 2) << 1 | (column & 4) >> 1;
#pragma unroll
		for (int k = 0; k < STEPS; k++)
#pragma unroll
			for (int half = 0; half < 2; half++) {
				const int d = k * 16 + half * 8 + lane % 4 * 2;
				float2 v = {0, 0};
				if (i < count && d < dim) v = *reinterpret_cast<const float2 *>(q + (size_t)i * dim + d);
				v.x *= scale, v.y *= scale;
#pragma unroll
				for (int p = 0; p < PARTS; p++) {
					const unsigned pair = parts[p][k][half] = pack_bf16(v.x, v.y);
					v.x -= __uint_as_float(pair << 16), v.y -= __uint_as_float(pair & 0xFFFF0000u);
				}
			}
	}

	// s: the products with keys, rows of LANES pieces in their places.
	__device__ __forceinline__ void multiply(float *s, const uint4 *keys, int lane) const {
		float c[PARTS][4] = {};
#pragma unroll
		for (int k = 0; k < STEPS; k += LANES / 8) {
			unsigned m[4]; // of 16 rows the pieces of a step; of eight rows those of two
			const int row = LANES == 16 ? lane % 8 : lane % 16, piece = LANES == 16 ? 2 * k + lane / 8 : 2 * k + lane / 16;
			ldmatrix_x4(m, keys + row * LANES + place(row, piece));
#pragma unroll
			for (int p = 0; p < PARTS; p++) {
				if constexpr (LANES == 16) {
					const unsigned first[4] = {m[0], 0, m[1], 0}, second[4] = {m[2], 0, m[3], 0};
					mma_bf16_16816(c[p], first, parts[p][k], c[p]);
					mma_bf16_16816(c[p], second, parts[p][k + 1], c[p]);
				} else {
					mma_bf16_16816(c[p], m, parts[p][k], c[p]);
				}
			}
		}
		float sums[4];
#pragma unroll
		for (int i = 0; i < 4; i++) sums[i] = c[0][i] + (c[1][i] + c[2][i]);
		if constexpr (LANES == 16) {
			s[0] = sums[0], s[1] = sums[1];
		} else { // two queries of two rows become four of one
			const bool upper = lane & 2;
#pragma unroll
			for (int i = 0; i < 2; i++) {
				const float keep = upper ? sums[2 + i] : sums[i], got = __shfl_xor_sync(~0u, upper ? sums[i] : sums[2 + i], 2);
				s[i] = upper ? got : keep, s[2 + i] = upper ? keep : got;
			}
		}
	}
};

// Entries of a block: what cuts a head of so many entries into at most `most` parts, but
// 256 at least, which keeps the warps of a block busy for some tiles. It depends on the
// head alone, so that a recorded step, with blocks for more entries, has the same bits.
static __device__ __forceinline__ int block_entries(int entries, int most) {
	return max(256, ((entries + most - 1) / most + 31) / 32 * 32);
}

// Shared memory of a block.
template <class T, int CHUNKS, int QUERIES> struct Layout {
	uint4 ring[STEP_WARPS][STAGES][2][SLOTS * CHUNKS][32]; // keys, then values
	float weights[STEP_WARPS][SLOTS * 4][QUERIES];         // of a tile's rows
	float shrink[STEP_WARPS][QUERIES], top[STEP_WARPS][QUERIES], sum[STEP_WARPS][QUERIES];
};

// One block: QUERIES queries of KV head blockIdx.y % kv_heads of sequence blockIdx.y /
// kv_heads, over part z = blockIdx.z of its entries; most: of block_entries. A row of keys
// is 16·LANES·CHUNKS bytes, or less. q [sequences, heads, dim]; past and from_past: those
// of the next sequence are stride heads on; logits [sequences·heads, width] may be null.
// Writes for head h of all sequences, at index z·sequences·heads + h: the softmax maximum
// and sum, and the output [dim] before division. Where out is not null there is one part:
// then it is the output, and lse, which may be null.
template <class T, int LANES, int CHUNKS, int QUERIES, bool CAPPED>
static __device__ __forceinline__ void attend(float *out, float *lse, float *part_max, float *part_sum, float *part_out, float *logits, const float *q,
                                              const Past<T> *past, const int *from_past, int stride, int heads, int kv_heads, int dim, int most,
                                              int width, float scale, float cap) {
	constexpr int VECTOR = 16 / sizeof(T), GROUPS = 32 / LANES, ROWS = SLOTS * GROUPS; // of a tile
	constexpr int HELD = SLOTS * QUERIES / LANES > 1 ? SLOTS * QUERIES / LANES : 1;
	constexpr bool TENSOR = sizeof(T) == 2 && QUERIES == 8 && LANES <= 16;
	constexpr int TWINS = LANES > SLOTS * QUERIES ? LANES / (SLOTS * QUERIES) : 1; // lanes that keep the same sum
	typedef Layout<T, CHUNKS, QUERIES> L;
	DYNAMIC_SHARED(unsigned char, bytes);
	L &shared = *reinterpret_cast<L *>(bytes);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, z = blockIdx.z;
	const int sequence = blockIdx.y / kv_heads, g = blockIdx.y % kv_heads, group = heads / kv_heads;
	const int first = blockIdx.x * QUERIES, count = min(QUERIES, group - first), head0 = sequence * heads + g * group + first;
	const Past<T> head = past[sequence * stride + g];
	const int chunk = block_entries(head.entries, most);
	if (z > 0 && z * chunk >= head.entries) return; // this head has fewer parts
	const int begin = max(z * chunk, from_past ? from_past[sequence * stride + g] : 0), end = min((z + 1) * chunk, head.entries);
	const int chunks = dim / VECTOR, sub = lane / LANES, own = lane % LANES;

	float mine[CHUNKS][QUERIES][VECTOR]; // what this lane multiplies with its part of a row
	Tensor<LANES> tensor;
	if constexpr (TENSOR) tensor.set(q + (size_t)head0 * dim, count, dim, scale, lane);
	else {
#pragma unroll
		for (int c = 0; c < CHUNKS; c++)
#pragma unroll
			for (int i = 0; i < QUERIES; i++)
#pragma unroll
				for (int d = 0; d < VECTOR; d += 4) {
					const int at = c * LANES + own;
					float4 v = {0, 0, 0, 0};
					if (i < count && at < chunks) v = *reinterpret_cast<const float4 *>(q + (size_t)(head0 + i) * dim + at * VECTOR + d);
					mine[c][i][d] = v.x * scale, mine[c][i][d + 1] = v.y * scale, mine[c][i][d + 2] = v.z * scale, mine[c][i][d + 3] = v.w * scale;
				}
	}

	// Tile t of this warp begins at entry(t); names are the rows of the next tile to fetch.
	auto entry = [&](int t) { return begin + (t * STEP_WARPS + warp) * ROWS; };
	int names[SLOTS];
	auto look_up = [&](int t) {
#pragma unroll
		for (int u = 0; u < SLOTS; u++) {
			const int j = entry(t) + u * GROUPS + sub;
			names[u] = head.index && j < end ? head.index[j] : j;
		}
	};
	auto fetch = [&](int t) { // of the rows that look_up found
#pragma unroll
		for (int u = 0; u < SLOTS; u++) {
			const bool there = entry(t) + u * GROUPS + sub < end;
#pragma unroll
			for (int c = 0; c < CHUNKS; c++) {
				const int at = c * LANES + own;
				const bool inside = there && at < chunks;
				const size_t from = inside ? (size_t)names[u] * dim + at * VECTOR : 0;
				const int place = TENSOR ? sub * LANES + Tensor<LANES>::place(u * GROUPS + sub, own) : lane;
				cp_async_16(&shared.ring[warp][t % STAGES][0][u * CHUNKS + c][place], head.k + from, inside ? 16 : 0);
				cp_async_16(&shared.ring[warp][t % STAGES][1][u * CHUNKS + c][lane], head.v + from, inside ? 16 : 0);
			}
		}
	};

	float top[HELD], sum[HELD], acc[CHUNKS][QUERIES][VECTOR];
#pragma unroll
	for (int i = 0; i < HELD; i++) top[i] = -INFINITY, sum[i] = 0;
#pragma unroll
	for (int c = 0; c < CHUNKS; c++)
#pragma unroll
		for (int i = 0; i < QUERIES; i++)
#pragma unroll
			for (int d = 0; d < VECTOR; d++) acc[c][i][d] = 0;
	// The sums that this lane keeps are those of queries query … query+HELD-1 with row
	// `row` of the tile.
	const int kept = own * SLOTS * QUERIES / LANES, query = TENSOR ? Tensor<LANES>::query(lane) : kept % QUERIES;
	const int row = TENSOR ? Tensor<LANES>::row(lane) : kept / QUERIES * GROUPS + sub;
	const bool speaks = own % TWINS == 0;

	if (begin < end) {
#pragma unroll 1
		for (int t = 0; t < STAGES - 1; t++) {
			look_up(t);
			fetch(t);
			cp_async_commit();
		}
		look_up(STAGES - 1);
	}
	for (int t = 0; entry(t) < end; t++) {
		cp_async_wait<STAGES - 2>();
		fetch(t + STAGES - 1); // over the tile that was used last
		cp_async_commit();
		look_up(t + STAGES);

		float s[SLOTS * QUERIES];
		if constexpr (TENSOR) {
			__syncwarp(); // all lanes' keys are there
			tensor.multiply(s, shared.ring[warp][t % STAGES][0][0], lane);
		} else {
#pragma unroll
			for (int u = 0; u < SLOTS; u++) {
#pragma unroll
				for (int i = 0; i < QUERIES; i++) s[u * QUERIES + i] = 0;
#pragma unroll
				for (int c = 0; c < CHUNKS; c++) {
					float k[VECTOR];
					widen(k, shared.ring[warp][t % STAGES][0][u * CHUNKS + c][lane]);
#pragma unroll
					for (int i = 0; i < QUERIES; i++)
#pragma unroll
						for (int d = 0; d < VECTOR; d++) s[u * QUERIES + i] += mine[c][i][d] * k[d];
				}
			}
			scatter_sums<SLOTS * QUERIES, LANES>(s);
		}
		const int column = entry(t) + row;
		const bool seen = column < end;
		bool moved = false;
		__syncwarp(); // the weights of the tile before have been read
#pragma unroll
		for (int i = 0; i < HELD; i++) {
			float x = seen ? bounded<CAPPED>(s[i], cap) : -INFINITY;
			if (logits && seen && speaks && query + i < count) logits[(size_t)(head0 + query + i) * width + column] = x;
			float m = fmaxf(butterfly<Max>(x, 16, LANES / SLOTS), top[i]);
			float shrink = m == top[i] ? 1 : expf(top[i] - m), p = seen ? expf(x - m) : 0;
			moved |= m != top[i];
			top[i] = m;
			sum[i] = sum[i] * shrink + p;
			if (speaks) shared.weights[warp][row][query + i] = p;
			if (speaks && row == 0) shared.shrink[warp][query + i] = shrink;
		}
		moved = __any_sync(~0u, moved);
		__syncwarp();
		if (moved) {
#pragma unroll
			for (int i = 0; i < QUERIES; i++) {
				const float shrink = shared.shrink[warp][i];
#pragma unroll
				for (int c = 0; c < CHUNKS; c++)
#pragma unroll
					for (int d = 0; d < VECTOR; d++) acc[c][i][d] *= shrink;
			}
		}
#pragma unroll
		for (int u = 0; u < SLOTS; u++) {
			float p[QUERIES];
#pragma unroll
			for (int i = 0; i < QUERIES; i += 4) {
				float4 four = *reinterpret_cast<const float4 *>(&shared.weights[warp][u * GROUPS + sub][i]);
				p[i] = four.x, p[i + 1] = four.y, p[i + 2] = four.z, p[i + 3] = four.w;
			}
#pragma unroll
			for (int c = 0; c < CHUNKS; c++) {
				float v[VECTOR];
				widen(v, shared.ring[warp][t % STAGES][1][u * CHUNKS + c][lane]);
#pragma unroll
				for (int i = 0; i < QUERIES; i++)
#pragma unroll
					for (int d = 0; d < VECTOR; d++) acc[c][i][d] += p[i] * v[d];
			}
		}
	}
	cp_async_wait<0>();

	// The warps' shares become one: softmax first, then the outputs.
#pragma unroll
	for (int i = 0; i < HELD; i++) {
		sum[i] = butterfly<Add>(sum[i], 16, LANES / SLOTS);
		if (speaks && row == 0) shared.top[warp][query + i] = top[i], shared.sum[warp][query + i] = sum[i];
	}
	__syncthreads(); // the ring is free as well
	float *outs = reinterpret_cast<float *>(&shared.ring); // [STEP_WARPS, QUERIES, dim]
#pragma unroll
	for (int i = 0; i < QUERIES; i++) {
		float most = -INFINITY;
#pragma unroll
		for (int w = 0; w < STEP_WARPS; w++) most = fmaxf(most, shared.top[w][i]);
		const float own_top = shared.top[warp][i], share = own_top > -INFINITY ? expf(own_top - most) : 0;
#pragma unroll
		for (int c = 0; c < CHUNKS; c++)
#pragma unroll
			for (int d = 0; d < VECTOR; d++) {
				const float v = butterfly<Add>(acc[c][i][d] * share, 16, LANES);
				const int at = c * LANES + own;
				if (sub == 0 && at < chunks) outs[(warp * QUERIES + i) * dim + at * VECTOR + d] = v;
			}
	}
	__syncthreads();
	const int total = gridDim.y / kv_heads * heads;
#pragma unroll 1
	for (int i = threadIdx.x / 32; i < count; i += STEP_WARPS) {
		float most = -INFINITY, all = 0;
#pragma unroll
		for (int w = 0; w < STEP_WARPS; w++) most = fmaxf(most, shared.top[w][i]);
#pragma unroll
		for (int w = 0; w < STEP_WARPS; w++)
			if (shared.top[w][i] > -INFINITY) all += shared.sum[w][i] * expf(shared.top[w][i] - most);
		const float inverse = 1 / all;
		const size_t at = (size_t)z * total + head0 + i;
		if (lane == 0) {
			if (!out) part_max[at] = most, part_sum[at] = all;
			else if (lse) lse[head0 + i] = most + logf(all);
		}
#pragma unroll 1
		for (int d = lane; d < dim; d += 32) {
			float v = 0;
#pragma unroll
			for (int w = 0; w < STEP_WARPS; w++) v += outs[(w * QUERIES + i) * dim + d];
			if (out) out[(size_t)(head0 + i) * dim + d] = v * inverse;
			else part_out[at * dim + d] = v;
		}
	}
}

// Merges the parts of a query head, blockIdx.x, in an order of their own: those whose
// number is w modulo STEP_WARPS, then over w. out [sequences·heads, dim]; lse
// [sequences·heads] may be null.
template <class T>
static __device__ __forceinline__ void merge(float *out, float *lse, const float *part_max, const float *part_sum, const float *part_out,
                                             const Past<T> *past, int stride, int heads, int kv_heads, int dim, int most, float (&partial)[32]) {
	DYNAMIC_SHARED(float, shared);
	float *outs = shared, *weights = outs + STEP_WARPS * dim; // [STEP_WARPS, dim], [parts]
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, h = blockIdx.x, total = gridDim.x;
	const int entries = past[h / heads * stride + h % heads / (heads / kv_heads)].entries, chunk = block_entries(entries, most);
	const int parts = (entries + chunk - 1) / chunk;
	float top = -INFINITY, sum = 0;
#pragma unroll 1
	for (int z = threadIdx.x; z < parts; z += STEP_WARPS * 32) top = fmaxf(top, weights[z] = part_max[(size_t)z * total + h]);
	top = block_max(top, partial);
#pragma unroll 1
	for (int z = threadIdx.x; z < parts; z += STEP_WARPS * 32) {
		const float w = weights[z] > -INFINITY ? expf(weights[z] - top) : 0;
		weights[z] = w;
		sum += part_sum[(size_t)z * total + h] * w;
	}
	sum = block_sum(sum, partial); // and the weights are there
	const float inverse = 1 / sum;
#pragma unroll 1
	for (int d = lane * 4; d < dim; d += 128) {
		float4 v = {0, 0, 0, 0};
#pragma unroll 4
		for (int z = warp; z < parts; z += STEP_WARPS) {
			const float4 p = *reinterpret_cast<const float4 *>(part_out + ((size_t)z * total + h) * dim + d);
			const float w = weights[z];
			v.x += p.x * w, v.y += p.y * w, v.z += p.z * w, v.w += p.w * w;
		}
		*reinterpret_cast<float4 *>(outs + warp * dim + d) = v;
	}
	__syncthreads();
#pragma unroll 1
	for (int d = threadIdx.x; d < dim; d += STEP_WARPS * 32) {
		float v = 0;
#pragma unroll
		for (int w = 0; w < STEP_WARPS; w++) v += outs[w * dim + d];
		out[(size_t)h * dim + d] = v * inverse; // of a single part, as attend has it
	}
	if (lse && threadIdx.x == 0) lse[h] = top + logf(sum);
}

// The scores of one row, from its logits, in place: log_score [sequences·heads, width] less
// the logarithm of the softmax's denominator lse; what the row does not see gets −∞.
template <class T>
static __device__ __forceinline__ void scores(float *log_score, const float *lse, const Past<T> *past, const int *from_past, int stride, int heads,
                                              int kv_heads, int width) {
	const int h = blockIdx.y, at = h / heads * stride + h % heads / (heads / kv_heads), column = (int)thread_index();
	if (column >= past[at].entries) return;
	const bool seen = !from_past || column >= from_past[at];
	float *score = log_score + (size_t)h * width + column;
	*score = seen ? *score - lse[h] : -INFINITY;
}

} // namespace decode

#define STEP(name, T)                                                                                                                        \
	extern "C" __global__ void __launch_bounds__(decode::STEP_WARPS * 32)                                                                     \
	merge_step_##name(float *out, float *lse, const float *part_max, const float *part_sum, const float *part_out, const Past<T> *past,       \
	                  int stride, int heads, int kv_heads, int dim, int most) {                                                              \
		__shared__ float partial[32];                                                                                                        \
		decode::merge(out, lse, part_max, part_sum, part_out, past, stride, heads, kv_heads, dim, most, partial);                           \
	}                                                                                                                                        \
	HOST_KERNEL(merge_step_##name)                                                                                                           \
	extern "C" __global__ void step_scores_##name(float *log_score, const float *lse, const Past<T> *past, const int *from_past, int stride, \
	                                              int heads, int kv_heads, int width) {                                                      \
		decode::scores(log_score, lse, past, from_past, stride, heads, kv_heads, width);                                                     \
	}                                                                                                                                        \
	HOST_KERNEL(step_scores_##name)
STEP(f32, float)
STEP(bf16, __nv_bfloat16)

#define ATTEND_STEP(name, T, LANES, CHUNKS, QUERIES, BLOCKS)                                                                                          \
	extern "C" __global__ void __launch_bounds__(decode::STEP_WARPS * 32, BLOCKS)                                                                     \
	name(float *out, float *lse, float *part_max, float *part_sum, float *part_out, float *logits, const float *q, const Past<T> *past,               \
	     const int *from_past, int stride, int heads, int kv_heads, int dim, int most, int width, float scale) {                                      \
		decode::attend<T, LANES, CHUNKS, QUERIES, false>(out, lse, part_max, part_sum, part_out, logits, q, past, from_past, stride, heads, kv_heads, \
		                                          dim, most, width, scale, 0);                                                                        \
	}                                                                                                                                                 \
	HOST_KERNEL(name)
#define ATTEND_STEP_CAPPED(name, T, LANES, CHUNKS, QUERIES, BLOCKS)                                                                                  \
	extern "C" __global__ void __launch_bounds__(decode::STEP_WARPS * 32, BLOCKS)                                                                    \
	name(float *out, float *lse, float *part_max, float *part_sum, float *part_out, float *logits, const float *q, const Past<T> *past,              \
	     const int *from_past, int stride, int heads, int kv_heads, int dim, int most, int width, float scale, float cap) {                          \
		decode::attend<T, LANES, CHUNKS, QUERIES, true>(out, lse, part_max, part_sum, part_out, logits, q, past, from_past, stride, heads, kv_heads, \
		                                          dim, most, width, scale, cap);                                                                     \
	}                                                                                                                                                \
	HOST_KERNEL(name)
// attend_step_TYPE_BYTES_QUERIES: rows of up to so many bytes.
ATTEND_STEP(attend_step_bf16_128_4, __nv_bfloat16, 8, 1, 4, 3)
ATTEND_STEP(attend_step_bf16_256_4, __nv_bfloat16, 16, 1, 4, 3)
ATTEND_STEP(attend_step_bf16_512_4, __nv_bfloat16, 32, 1, 4, 3)
ATTEND_STEP(attend_step_bf16_128_8, __nv_bfloat16, 8, 1, 8, 2)
ATTEND_STEP(attend_step_bf16_256_8, __nv_bfloat16, 16, 1, 8, 2)
ATTEND_STEP(attend_step_bf16_512_8, __nv_bfloat16, 32, 1, 8, 2)
ATTEND_STEP(attend_step_f32_256_4, float, 16, 1, 4, 3)
ATTEND_STEP(attend_step_f32_512_4, float, 32, 1, 4, 3)
ATTEND_STEP(attend_step_f32_1024_4, float, 32, 2, 4, 2)
// Of models that bound logits softly.
ATTEND_STEP_CAPPED(attend_step_capped_bf16_128, __nv_bfloat16, 8, 1, 4, 3)
ATTEND_STEP_CAPPED(attend_step_capped_bf16_256, __nv_bfloat16, 16, 1, 4, 3)
ATTEND_STEP_CAPPED(attend_step_capped_bf16_512, __nv_bfloat16, 32, 1, 4, 3)
ATTEND_STEP_CAPPED(attend_step_capped_f32_256, float, 16, 1, 4, 3)
ATTEND_STEP_CAPPED(attend_step_capped_f32_512, float, 32, 1, 4, 3)
ATTEND_STEP_CAPPED(attend_step_capped_f32_1024, float, 32, 2, 4, 2)
