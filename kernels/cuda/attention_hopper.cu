// Attention of many rows over caches in bf16 for Hopper: the arithmetic of
// attention_mma.cu with the chip's own instructions. One warp keeps the copy engine
// busy; two warpgroups of 64 queries each multiply. While the tensor cores weigh the
// values of one tile, the ordinary units turn the logits of the next into weights.
// Queries and probabilities are rounded to bf16, sums are float32.
#include "attention.h"
#include "hopper.h"

namespace hopper {

constexpr int TILE = 64;        // queries of a warpgroup
constexpr int CONSUMERS = 2;    // warpgroups that multiply
constexpr int THREADS = (1 + CONSUMERS) * 128;
constexpr int ROW = 128;        // bytes of a row in shared memory: 64 elements

// Shared memory of a block, in panels of 64 columns.
template <int DIM, int KEYS, int STAGES> struct Layout {
	static constexpr int PANELS = DIM / 64;
	static constexpr int QUERY_PANEL = TILE * ROW, KEY_PANEL = KEYS * ROW; // bytes
	static constexpr int QUERY_BYTES = PANELS * QUERY_PANEL, KEY_BYTES = PANELS * KEY_PANEL;
	unsigned char queries[CONSUMERS][QUERY_BYTES], keys[STAGES][KEY_BYTES], values[STAGES][KEY_BYTES];
	unsigned long long queries_there[CONSUMERS], keys_there[STAGES], values_there[STAGES], keys_free[STAGES], values_free[STAGES];
};

// One block: 128 queries of KV head blockIdx.y, which are the last entries of the head;
// the longest blocks first. maps: of the keys and the values of every KV head, boxes of
// 64 columns by KEYS entries. out [rows, heads, DIM]; lse [heads, rows] may be null.
template <int DIM, int KEYS, int STAGES>
static __device__ __forceinline__ void attend(float *out, float *lse, const float *q, const Past<__nv_bfloat16> *past, const TensorMap *maps,
                                              const int *from_past, int rows, int heads, int kv_heads, float scale) {
	typedef Layout<DIM, KEYS, STAGES> L;
	DYNAMIC_SHARED(unsigned char, unaligned);
	L &shared = *reinterpret_cast<L *>(unaligned + (1024 - shared_address(unaligned) % 1024) % 1024);
	const int lane = threadIdx.x % 32, group = heads / kv_heads, count = rows * group, g = blockIdx.y;
	const int first = (gridDim.x - 1 - blockIdx.x) * (CONSUMERS * TILE), last = min(first + CONSUMERS * TILE, count) - 1;
	const int entries = past[g].entries;
	const int from = visible(g, first / group, rows, entries, false, from_past, nullptr).from / KEYS * KEYS;
	const int to = visible(g, last / group, rows, entries, false, from_past, nullptr).to;
	const int tiles = (to - from + KEYS - 1) / KEYS;

	if (threadIdx.x == 0) {
		for (int w = 0; w < CONSUMERS; w++) mbarrier_init(&shared.queries_there[w], 128);
		for (int s = 0; s < STAGES; s++) {
			mbarrier_init(&shared.keys_there[s], 1);
			mbarrier_init(&shared.values_there[s], 1);
			mbarrier_init(&shared.keys_free[s], CONSUMERS * 4); // one arrival per warp
			mbarrier_init(&shared.values_free[s], CONSUMERS * 4);
		}
		mbarrier_init_fence();
	}
	__syncthreads();

	if (threadIdx.x < 128) { // the producer
		release_registers<24>();
		if (threadIdx.x == 0) {
			const TensorMap *keys = &maps[2 * g], *values = keys + 1;
			tensor_map_acquire(keys);
			tensor_map_acquire(values);
			auto fetch = [&](unsigned char *tile, const TensorMap *map, int i, unsigned long long *there, unsigned long long *unused) {
				mbarrier_wait(unused, i / STAGES % 2 ^ 1);
				mbarrier_arrive_expect(there, L::KEY_BYTES); // rows past the last entry come as zeros and count too
				for (int p = 0; p < L::PANELS; p++) bulk_load(tile + p * L::KEY_PANEL, map, p * 64, from + i * KEYS, there);
			};
			for (int i = 0; i <= tiles; i++) { // the keys of a tile are needed before the values of the one before
				if (i < tiles) fetch(shared.keys[i % STAGES], keys, i, &shared.keys_there[i % STAGES], &shared.keys_free[i % STAGES]);
				if (i > 0) fetch(shared.values[(i - 1) % STAGES], values, i - 1, &shared.values_there[(i - 1) % STAGES], &shared.values_free[(i - 1) % STAGES]);
			}
		}
	} else {
		claim_registers<240>();
		const int thread = threadIdx.x % 128, consumer = threadIdx.x / 128 - 1, start = first + consumer * TILE;
		unsigned char *queries = shared.queries[consumer];
		// A thread has one chunk of 8 columns of every EVERY-th query. The loads of BATCH queries are on
		// their way before any is used; rows past the last are copies of it, and not written.
		constexpr int EVERY = 128 / (DIM / 8), BATCH = TILE / EVERY < 8 ? TILE / EVERY : 8;
		const int chunk = thread % (DIM / 8);
#pragma unroll 1
		for (int batch = thread / (DIM / 8); batch < TILE; batch += BATCH * EVERY) {
			float4 v[BATCH][2];
#pragma unroll
			for (int i = 0; i < BATCH; i++) {
				const int query = min(start + batch + i * EVERY, count - 1), row = query / group;
				const float4 *src = reinterpret_cast<const float4 *>(q + ((size_t)row * heads + g * group + query - row * group) * DIM + chunk * 8);
				v[i][0] = src[0], v[i][1] = src[1];
			}
#pragma unroll
			for (int i = 0; i < BATCH; i++) {
				const int r = batch + i * EVERY;
				const float4 a = v[i][0], b = v[i][1];
				shared_store_16(queries + chunk / 8 * L::QUERY_PANEL + r * ROW + (chunk % 8 ^ r % 8) * 16,
				                {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)});
			}
		}
		shared_store_fence();
		mbarrier_arrive(&shared.queries_there[consumer]);
		mbarrier_wait(&shared.queries_there[consumer], 0);

		// This thread's share of the accumulators: rows lane/4 and lane/4 + 8 of the warp's
		// 16, columns 2·(lane%4) and the next one of every 8.
		const int row = start + thread / 32 * 16 + lane / 4;
		Visible see[2];
		for (int half = 0; half < 2; half++) see[half] = visible(g, min(row + half * 8, count - 1) / group, rows, entries, false, from_past, nullptr);
		const int all_from = max(see[0].from, see[1].from), all_to = min(see[0].to, see[1].to);
		const float unit = scale * 1.4426950408889634f; // logits in powers of two
		float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, shrink[2], acc[DIM / 2] = {}, s[KEYS / 2];
		unsigned p[KEYS / 4];

		auto wait_for_keys = [&](int i) { mbarrier_wait(&shared.keys_there[i % STAGES], i / STAGES % 2); };
		auto multiply_keys = [&](int i) { // starts s = queries · keys of tile i, which are there
			wgmma_pin(s);
			wgmma_fence();
#pragma unroll
			for (int k = 0; k < DIM / 16; k++) {
				int panel = k / 4, inside = k % 4 * 32;
				wgmma_shared(s, wgmma_matrix(queries + panel * L::QUERY_PANEL + inside, 16),
				             wgmma_matrix(shared.keys[i % STAGES] + panel * L::KEY_PANEL + inside, 16), k > 0);
			}
			wgmma_commit();
		};
		auto multiply_values = [&](int i) { // starts acc += p · values of tile i
			mbarrier_wait(&shared.values_there[i % STAGES], i / STAGES % 2);
			wgmma_pin(acc);
			wgmma_fence();
#pragma unroll
			for (int k = 0; k < KEYS / 16; k++) wgmma_registers(acc, p + 4 * k, wgmma_matrix(shared.values[i % STAGES] + k * 16 * ROW, L::KEY_PANEL));
			wgmma_commit();
		};
		auto release = [&](unsigned long long *b) {
			if (lane == 0) mbarrier_arrive(b);
		};
		auto weigh = [&](int i) { // s becomes weights; shrink is what the weights before are too large by
			const int c = from + i * KEYS;
			if (c < all_from || c + KEYS > all_to) {
#pragma unroll
				for (int e = 0; e < KEYS / 2; e++) {
					int column = c + e / 4 * 8 + lane % 4 * 2 + e % 2;
					if (column < see[e / 2 % 2].from || column >= see[e / 2 % 2].to) s[e] = -INFINITY;
				}
			}
#pragma unroll
			for (int half = 0; half < 2; half++) {
				float largest = top[half];
#pragma unroll
				for (int e = 0; e < KEYS / 2; e++)
					if (e / 2 % 2 == half) largest = fmaxf(largest, s[e]);
				largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1)); // the four lanes of a row
				largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
				float base = largest == -INFINITY ? 0 : largest * unit; // nothing seen yet
				shrink[half] = exp2_fast(top[half] * unit - base);
				top[half] = largest;
				sum[half] *= shrink[half];
#pragma unroll
				for (int e = 0; e < KEYS / 2; e++)
					if (e / 2 % 2 == half) {
						s[e] = exp2_fast(fmaf(s[e], unit, -base));
						sum[half] += s[e];
					}
			}
		};
		auto pack = [&]() { // accumulators of 16 columns are laid out like the registers of a
#pragma unroll
			for (int e = 0; e < KEYS / 4; e++) p[e] = pack_bf16(s[2 * e], s[2 * e + 1]);
		};

		wait_for_keys(0);
		multiply_keys(0);
		wgmma_wait<0>();
		wgmma_pin(s);
		release(&shared.keys_free[0]);
		weigh(0);
		pack();
		if (tiles > 1) wait_for_keys(1);
		for (int i = 1; i < tiles; i++) {
			multiply_keys(i);
			multiply_values(i - 1);
			wgmma_wait<1>(); // the keys
			wgmma_pin(s);
			release(&shared.keys_free[i % STAGES]);
			weigh(i);
			// The loop of this wait ends a basic block: ptxas would move the next one up, above the softmax.
			if (i + 1 < tiles) wait_for_keys(i + 1);
			wgmma_wait<0>(); // the values
			wgmma_pin(acc);
			release(&shared.values_free[(i - 1) % STAGES]);
#pragma unroll
			for (int e = 0; e < DIM / 2; e++) acc[e] *= shrink[e / 2 % 2];
			pack();
		}
		multiply_values(tiles - 1);
		wgmma_wait<0>();
		wgmma_pin(acc);

#pragma unroll
		for (int half = 0; half < 2; half++) {
			sum[half] += __shfl_xor_sync(~0u, sum[half], 1);
			sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
			int query = row + half * 8;
			if (query >= count) continue;
			int r = query / group, h = g * group + query % group;
			if (lse && lane % 4 == 0) lse[(size_t)h * rows + r] = top[half] * scale + logf(sum[half]);
			float *o = out + ((size_t)r * heads + h) * DIM + lane % 4 * 2, inverse = 1 / sum[half];
#pragma unroll
			for (int n = 0; n < DIM / 8; n++) {
				float2 pair = {acc[n * 4 + half * 2] * inverse, acc[n * 4 + half * 2 + 1] * inverse};
				*reinterpret_cast<float2 *>(o + n * 8) = pair;
			}
		}
	}
}

} // namespace hopper

#define ATTEND_HOPPER(DIM, KEYS, STAGES)                                                                                                     \
	extern "C" __global__ void __launch_bounds__(hopper::THREADS, 1)                                                                         \
	attend_hopper_##DIM(float *out, float *lse, const float *q, const Past<__nv_bfloat16> *past, const TensorMap *maps, const int *from_past, \
	                    int rows, int heads, int kv_heads, float scale) {                                                                    \
		hopper::attend<DIM, KEYS, STAGES>(out, lse, q, past, maps, from_past, rows, heads, kv_heads, scale);                                 \
	}                                                                                                                                        \
	HOST_KERNEL(attend_hopper_##DIM)
ATTEND_HOPPER(64, 128, 3)
ATTEND_HOPPER(128, 128, 2)
ATTEND_HOPPER(256, 64, 2)
