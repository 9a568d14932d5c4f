// From observations to kept entries: scores per KV head, top-k, compaction.
//
// Scores are ordered as on the processor: NaN counts as −Inf, the zeros are equal, of
// equal scores the lower index is first. There are no floating-point atomics and none
// whose order could show.
#include "prims.h"
#include "logs.h"
#include "map.h"
#include "order.h"
#include "topk.h"

// What is read of one KV head's entries.
struct Choice {
	int entries; // of its row of scores
	int budget;  // to keep
	int sink, recent;
};

// scores [kvHeads, width] of entries [kvHeads] = the probabilities of log_score [heads,
// log_width] over the query heads of a group: 0 mean, 1 maximum, 2 sum, times factor; 3
// the logarithm of the mean.
// Grid: columns, KV heads.
extern "C" __global__ void group_scores(float *scores, const float *log_score, const int *entries, int width, int log_width, int group, int how, float factor) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= entries[g]) return;
	if (how == 3) {
		scores[(size_t)g * width + j] = log_mean(log_score + (size_t)g * group * log_width + j, log_width, group);
		return;
	}
	float s = 0;
	for (int h = g * group; h < (g + 1) * group; h++) {
		float p = (float)exp((double)log_score[(size_t)h * log_width + j]);
		s = how == 1 ? fmaxf(s, p) : s + p;
	}
	if (how == 0) s /= (float)group;
	scores[(size_t)g * width + j] = s * factor;
}
HOST_KERNEL(group_scores)

// to = max-pool of from over an odd window, clipped at the ends; the last tail entries
// of a head are copied and pooled with nothing. average makes it the mean of that and
// what to held.
extern "C" __global__ void pool_scores(float *to, const float *from, const int *entries, int width, int kernel, int tail, int average) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x, n = entries[g];
	if (j >= n) return;
	from += (size_t)g * width, to += (size_t)g * width;
	float top = from[j];
	int end = max(0, n - tail);
	if (j < end)
		for (int i = max(0, j - kernel / 2); i <= min(end - 1, j + kernel / 2); i++) top = fmaxf(top, from[i]);
	to[j] = average ? (to[j] + top) / 2 : top;
}
HOST_KERNEL(pool_scores)

// Every row becomes the mean over so many heads in turn, which have the same entries; n
// is the most of any. Of logarithms it is the logarithm of the mean. Grid: columns, groups
// of heads.
extern "C" __global__ void mean_scores(float *scores, int n, int width, int heads, int logarithms) {
	int j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= n) return;
	scores += (size_t)blockIdx.y * heads * width;
	float s = 0;
	if (logarithms) {
		s = log_mean(scores + j, width, heads);
	} else {
		for (int h = 0; h < heads; h++) s += scores[(size_t)h * width + j];
		s /= (float)heads;
	}
	for (int h = 0; h < heads; h++) scores[(size_t)h * width + j] = s;
}
HOST_KERNEL(mean_scores)

// sums [kvHeads, width] += the group's mean probability; of the entries of a head only
// the first known have a sum so far.
extern "C" __global__ void add_scores(float *sums, const float *log_score, const int *entries, const int *known, int width, int log_width, int group) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= entries[g]) return;
	float *sum = sums + (size_t)g * width + j, s = j < known[g] ? *sum : 0;
	for (int h = g * group; h < (g + 1) * group; h++) s += (float)exp((double)log_score[(size_t)h * log_width + j]) / (float)group;
	*sum = s;
}
HOST_KERNEL(add_scores)

// scores += sums over the first known entries of every head.
extern "C" __global__ void carry_scores(float *scores, const float *sums, const int *known, int width, int sums_width) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j < known[g]) scores[(size_t)g * width + j] += sums[(size_t)g * sums_width + j];
}
HOST_KERNEL(carry_scores)

extern "C" __global__ void max_scores(float *acc, const float *other, size_t n) {
	map<2, 1>({acc}, {acc, other}, n, [](float *out, const float *in) { out[0] = fmaxf(in[0], in[1]); });
}
HOST_KERNEL(max_scores)

// scores = 1 / (1 + ‖k‖₂), the sum in double and in order: one thread per key.
template <class T> static __device__ __forceinline__ void key_scores(float *scores, const T *const *keys, const int *entries, int width, int dim) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= entries[g]) return;
	const T *k = keys[g] + (size_t)j * dim;
	double sum = 0;
	for (int i = 0; i < dim; i++) sum += (double)to_float(k[i]) * to_float(k[i]);
	scores[(size_t)g * width + j] = (float)(1 / (1 + sqrt(sum)));
}
extern "C" __global__ void key_scores_f32(float *scores, const float *const *keys, const int *entries, int width, int dim) {
	key_scores(scores, keys, entries, width, dim);
}
extern "C" __global__ void key_scores_bf16(float *scores, const __nv_bfloat16 *const *keys, const int *entries, int width, int dim) {
	key_scores(scores, keys, entries, width, dim);
}
HOST_KERNEL(key_scores_f32)
HOST_KERNEL(key_scores_bf16)

// put(place, i) of each of the k largest of x [n], 1 ≤ k ≤ n, in the order of i; of equal ones the
// first count. The whole block.
template <class Put> static __device__ __forceinline__ void keep_largest(const float *x, int n, int k, Digits &digits, int (&counts)[32], Put put) {
	int ties;
	unsigned threshold = kth_largest(x, n, k, &ties, digits);
	int above = 0, equal = 0; // before this round
	for (int from = 0; from < n; from += blockDim.x) {
		int i = from + threadIdx.x;
		unsigned key = i < n ? order_of(x[i]) : 0; // no key is 0
		Ranks r = block_ranks(key > threshold, key == threshold, counts);
		int tied = equal + r.second;
		if (key > threshold || (key == threshold && tied < ties)) put(above + r.first + min(tied, ties), i);
		above += r.firsts, equal += r.seconds;
	}
}

// best and best_at [kvHeads, best_width]: of every chunk of a head's entries between the first and
// the last ones, which has at least as many as are chosen of all, the scores and indices of those
// that may be among them, chunk after chunk. Grid: chunks, KV heads.
extern "C" __global__ void __launch_bounds__(512) select_top_part(float *best, int *best_at, const float *scores, const Choice *choices, int width,
                                                                  int chunk, int best_width) {
	__shared__ Digits digits;
	__shared__ int counts[32];
	Choice c = choices[blockIdx.y];
	int n = c.entries - c.sink - c.recent, k = c.budget - c.sink - c.recent, from = blockIdx.x * chunk;
	if (c.entries <= c.budget || k == 0 || from >= n) return;
	n = min(chunk, n - from);
	size_t at = (size_t)blockIdx.y * best_width + (size_t)blockIdx.x * k;
	const float *x = scores + (size_t)blockIdx.y * width + c.sink + from;
	keep_largest(x, n, min(k, n), digits, counts, [&](int place, int i) { best[at + place] = x[i], best_at[at + place] = from + i; });
}
HOST_KERNEL(select_top_part)

// ids [kvHeads, id_width]: the first sink entries, the last recent ones, and of those
// between the highest scores up to the budget; ascending. They are looked for among what
// select_top_part has left of each chunk, where best is given. One block per KV head.
extern "C" __global__ void __launch_bounds__(512) select_top(int *ids, const float *scores, const Choice *choices, int width, int id_width,
                                                             const float *best, const int *best_at, int chunk, int best_width) {
	__shared__ Digits digits;
	__shared__ int counts[32];
	Choice c = choices[blockIdx.x];
	const float *x = scores + (size_t)blockIdx.x * width + c.sink;
	ids += (size_t)blockIdx.x * id_width;
	if (c.entries <= c.budget) {
		for (int i = threadIdx.x; i < c.entries; i += blockDim.x) ids[i] = i;
		return;
	}
	int n = c.entries - c.sink - c.recent, k = c.budget - c.sink - c.recent;
	for (int i = threadIdx.x; i < c.sink; i += blockDim.x) ids[i] = i;
	for (int i = threadIdx.x; i < c.recent; i += blockDim.x) ids[c.sink + k + i] = c.entries - c.recent + i;
	if (k == 0) return;
	if (best) {
		x = best + (size_t)blockIdx.x * best_width, best_at += (size_t)blockIdx.x * best_width;
		n = n / chunk * k + min(n % chunk, k);
	}
	keep_largest(x, n, k, digits, counts, [&](int place, int i) { ids[c.sink + place] = c.sink + (best ? best_at[i] : i); });
}
HOST_KERNEL(select_top)

// What a head may compete with: its candidates are the scores between sink and recent
// but for the own best of them.
struct Rival {
	int entries, sink, recent;
	int own; // entries that it keeps anyway; at least as many as there are: no candidates
};

// extra [heads]: how many of the rest highest candidates of all heads are each head's;
// ties go to the lower head. bound and left [heads] are scratch: the key of the last of
// a head's own, and how many of the same key are candidates. One block.
extern "C" __global__ void __launch_bounds__(512) share_budget(int *extra, unsigned *bound, int *left, const float *scores, const Rival *rivals, int heads, int width, int rest) {
	__shared__ Digits digits;
	__shared__ int partial[32];
	int candidates = 0;
	for (int h = 0; h < heads; h++) {
		Rival r = rivals[h];
		int n = r.entries - r.sink - r.recent;
		const float *x = scores + (size_t)h * width + r.sink;
		unsigned last = ~0u; // above every key
		int remain = 0;
		if (r.own >= n) {
			last = 0; // below every key
		} else if (r.own > 0) {
			int ties, same = 0;
			last = kth_largest(x, n, r.own, &ties, digits);
			for (int i = threadIdx.x; i < n; i += blockDim.x) same += order_of(x[i]) == last;
			remain = block_sum(same, partial) - ties;
		}
		candidates += max(0, n - r.own);
		if (threadIdx.x == 0) bound[h] = last, left[h] = remain;
	}
	__syncthreads(); // bounds are written
	unsigned threshold = 0;
	int ties = 0;
	if (rest < candidates) {
		int k = rest;
		for (int shift = 24; shift >= 0; shift -= 8) {
			for (int i = threadIdx.x; i < 256; i += blockDim.x) digits.bins[i] = 0;
			__syncthreads();
			for (int h = 0; h < heads; h++) {
				Rival r = rivals[h];
				const float *x = scores + (size_t)h * width + r.sink;
				unsigned last = bound[h];
				for (int i = threadIdx.x; i < r.entries - r.sink - r.recent; i += blockDim.x) {
					unsigned key = order_of(x[i]);
					if (key < last && (shift == 24 || key >> (shift + 8) == threshold)) atomicAdd(&digits.bins[key >> shift & 255], 1);
				}
				if (threadIdx.x == 0 && (shift == 24 || last >> (shift + 8) == threshold)) atomicAdd(&digits.bins[last >> shift & 255], left[h]);
			}
			__syncthreads();
			find_digit(digits, k);
			threshold = threshold << 8 | (unsigned)digits.digit, k = digits.left;
		}
		ties = k;
	}
	for (int h = 0; h < heads; h++) { // every thread has the same ties left
		Rival r = rivals[h];
		const float *x = scores + (size_t)h * width + r.sink;
		unsigned last = bound[h];
		int above = 0, equal = 0;
		for (int i = threadIdx.x; i < r.entries - r.sink - r.recent; i += blockDim.x) {
			unsigned key = order_of(x[i]);
			above += key < last && key > threshold;
			equal += key < last && key == threshold;
		}
		above = block_sum(above, partial), equal = block_sum(equal, partial);
		if (last > threshold) above += left[h];
		if (last == threshold) equal += left[h];
		int share = min(equal, ties);
		ties -= share;
		if (threadIdx.x == 0) extra[h] = above + share;
	}
}
HOST_KERNEL(share_budget)

// Rows of one tensor that go to another.
struct Move {
	char *to;
	const char *from;
	const int *ids;
	int rows;
	int back; // 0: to[j] = from[ids[j]]; 1: the same where the row moves; 2: to[j] = from[j] where it has moved
};

// Grid: units of the longest move, moves; row is the units of a row.
template <class Unit> static __device__ __forceinline__ void move_rows(const Move *moves, int row) {
	Move m = moves[blockIdx.y];
	size_t i = thread_index();
	if (i >= (size_t)m.rows * row) return;
	int j = (int)(i / row), id = m.ids[j];
	if (m.back != 0 && id == j) return;
	size_t at = m.back == 2 ? (size_t)j : (size_t)id;
	((Unit *)m.to)[i] = ((const Unit *)m.from)[at * row + i % row];
}
extern "C" __global__ void move_rows_16(const Move *moves, int row) { move_rows<uint4>(moves, row); }
extern "C" __global__ void move_rows_2(const Move *moves, int row) { move_rows<unsigned short>(moves, row); }
HOST_KERNEL(move_rows_16)
HOST_KERNEL(move_rows_2)

// to [heads, to_width] = from [heads, from_width] at the first rows[h] of ids [heads,
// id_width]. Where known is given, from has so many columns in row h, and what comes
// after them counts on from base[h].
extern "C" __global__ void pick_f32(float *to, const float *from, const int *ids, const int *rows, int to_width, int from_width, int id_width) {
	int h = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j < rows[h]) to[(size_t)h * to_width + j] = from[(size_t)h * from_width + ids[(size_t)h * id_width + j]];
}
extern "C" __global__ void pick_ids(int *to, const int *from, const int *ids, const int *rows, const int *known, const int *base, int to_width, int from_width, int id_width) {
	int h = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= rows[h]) return;
	int id = ids[(size_t)h * id_width + j];
	to[(size_t)h * to_width + j] = id < known[h] ? from[(size_t)h * from_width + id] : base[h] + id - known[h];
}
HOST_KERNEL(pick_f32)
HOST_KERNEL(pick_ids)
