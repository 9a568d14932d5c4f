// Sampling: chooses a token of every row of logits by the rules of the processor's
// sampler, with the random number that the host has drawn, without sorting.
//
// The blocks of a row take a segment of the logits each. A pass over them sums weights by
// one digit of the logits' order; the next one adds up what the blocks before found, which
// every block does for itself and in one order, and goes on with the digit in which the
// place lies. The largest logit is a pass, and top-k, top-p and the draw are up to eight.
#include "prims.h"
#include "order.h"

struct Draw {
	double temperature; // 0: the largest logit
	double top_p;       // smallest set with this probability; 0 or 1: all
	double u;           // uniform in [0, 1)
	int top_k;          // most likely tokens considered; 0: all
	int unused;
};

// A place in the order of descending logits: of the tokens with this key the first
// ties, behind all with larger keys, whose weights sum to before.
struct Place {
	unsigned key;
	int ties;
	double before;
};

// What is known of a row between two passes.
struct Progress {
	Place at, end; // being looked for; of the tokens that count, the last one
	double sum;    // of the weights up to end; 0: not known yet
	double target; // what the sum of weights up to at reaches, or exceeds
	float top;
	int bad, first; // logits that are not finite; where the largest one is
	int unused;
};

const int DIGITS = 16;

// What a block found in its segment.
struct Part {
	double sums[DIGITS]; // of the weights, by the pass's digit
	int counts[DIGITS];  // of tokens by their last digit
	float top;
	int bad, first, unused;
};

enum { TOP = -1, TOP_K, TOP_P, DRAW }; // stages

static __device__ __forceinline__ bool cuts(const Draw &d, int stage, int n) {
	if (!(d.temperature > 0)) return false;
	return stage == TOP_K ? d.top_k > 0 && d.top_k < n : stage == DRAW || (d.top_p > 0 && d.top_p < 1);
}

// Of a token in a stage: top-k counts.
static __device__ __forceinline__ double weight(const Draw &d, int stage, float top, float v) {
	return stage == TOP_K ? 1 : exp((double)(v - top) / d.temperature);
}

const int THREADS = 256; // of a block
const int LISTS = THREADS / DIGITS;

// Shared memory of a block.
struct Shared {
	double lists[LISTS][DIGITS], totals[DIGITS];
	int counts[DIGITS], partial[32];
	float tops[32];
	Progress next;
};

// Adds up the parts of a pass and goes on from there: all threads return the same.
static __device__ __forceinline__ Progress advance(Progress now, const Part *parts, int blocks, const Draw &draw, int stage, int shift, int n, Shared &s) {
	const int d = threadIdx.x % DIGITS, list = threadIdx.x / DIGITS;
	if (stage == TOP) { // there are no more blocks than threads
		const bool some = (int)threadIdx.x < blocks;
		const float own = some ? parts[threadIdx.x].top : -INFINITY;
		now.top = block_max(own, s.tops);
		now.bad = block_sum(some ? parts[threadIdx.x].bad : 0, s.partial);
		const int winner = -(int)block_max(some && own == now.top ? -(float)threadIdx.x : -(float)THREADS, s.tops);
		now.first = winner < blocks ? parts[winner].first : 0;
		now.at = {order_of(now.top), 1, 0};
		now.end = {0, 0, 0}; // all tokens count, since no key is 0
		now.sum = 0, now.target = 0;
		return now;
	}
	if (!cuts(draw, stage, n) || now.bad > 0) return now;
	double sum = 0;
	for (int b = list; b < blocks; b += LISTS) sum += parts[b].sums[d];
	s.lists[list][d] = sum;
	__syncthreads(); // the lists are there
	if (threadIdx.x < DIGITS) {
		sum = 0;
		for (int l = 0; l < LISTS; l++) sum += s.lists[l][d];
		s.totals[d] = sum;
		int count = 0;
		for (int b = 0; b < blocks && shift == 0; b++) count += parts[b].counts[d];
		s.counts[d] = count;
	}
	__syncthreads(); // the totals are there
	if (threadIdx.x == 0) {
		if (shift == 28) now.at = {0, 0, 0};
		double sums[DIGITS], all = 0;
		const double last = now.end.ties > 0 ? now.end.ties * weight(draw, stage, now.top, of_order(now.end.key)) : 0; // they have one key
#pragma unroll 1
		for (int i = DIGITS - 1; i >= 0; i--) {
			sums[i] = now.end.ties > 0 && (shift == 28 || now.end.key >> (shift + 4) == now.at.key) && (int)(now.end.key >> shift & 15) == i ? last : 0;
			sums[i] += s.totals[i];
			all += sums[i];
		}
		if (shift == 28) {
			if (now.sum == 0) now.sum = all;
			now.target = stage == TOP_K ? draw.top_k : (stage == TOP_P ? draw.top_p : draw.u) * now.sum;
		}
		int digit = 0;
		bool found = false;
		sum = now.at.before;
#pragma unroll 1
		for (int i = DIGITS - 1; i >= 0 && !found; i--) {
			if (sums[i] == 0) continue;
			digit = i, now.at.before = sum;
			sum += sums[i];
			found = stage == DRAW ? sum > now.target : sum >= now.target;
		}
		now.at.key = now.at.key << 4 | (unsigned)digit;
		if (shift == 0) {
			const int same = now.at.key == now.end.key ? now.end.ties : s.counts[digit];
			const double one = weight(draw, stage, now.top, of_order(now.at.key));
			double steps = (now.target - now.at.before) / one;
			steps = stage == DRAW ? floor(steps) + 1 : ceil(steps);
			now.at.ties = steps >= same ? same : steps < 1 ? 1 : (int)steps;
			now.end = now.at;
			now.sum = stage == TOP_P ? now.at.before + now.at.ties * one : 0;
		}
		s.next = now;
	}
	__syncthreads(); // it is known
	return s.next;
}

// The segment of block blockIdx.x of a row of n.
static __device__ __forceinline__ int segment(int n) { return (n + gridDim.x - 1) / gridDim.x; }

// The first pass: the largest logit of every segment, and where it is first.
extern "C" __global__ void __launch_bounds__(THREADS) draw_top(Part *parts, const float *logits, int n) {
	__shared__ float tops[32];
	__shared__ int partial[32];
	const float *x = logits + (size_t)blockIdx.y * n;
	const int from = blockIdx.x * segment(n), to = min(n, from + segment(n));
	float top = -INFINITY;
	int bad = 0, first = n;
	for (int i = from + threadIdx.x; i < to; i += THREADS) {
		const float v = x[i];
		bad += v - v != 0;
		if (v > top) top = v, first = i;
	}
	const float most = block_max(top, tops);
	bad = block_sum(bad, partial);
	first = -(int)block_max(top == most ? -(float)(first - from) : -INFINITY, tops) + from; // a segment has fewer than 2^24
	if (threadIdx.x == 0) {
		Part &part = parts[(size_t)blockIdx.y * gridDim.x + blockIdx.x];
		part.top = most, part.bad = bad, part.first = first;
	}
}
HOST_KERNEL(draw_top)

// A pass over the digit at shift in a stage, after the pass (last_stage, last_shift), whose
// parts are `found`.
extern "C" __global__ void __launch_bounds__(THREADS)
draw_digit(Part *parts, Progress *progress, const Part *found, const Progress *before, const float *logits, const Draw *draws, int n, int stage, int shift,
           int last_stage, int last_shift) {
	__shared__ Shared shared;
	__shared__ double warps[THREADS / 32][DIGITS];
	__shared__ int counts[DIGITS];
	const int row = blockIdx.y;
	const Draw draw = draws[row];
	const float *x = logits + (size_t)row * n;
	const Progress now = advance(before[row], found + (size_t)row * gridDim.x, gridDim.x, draw, last_stage, last_shift, n, shared);
	if (threadIdx.x == 0 && blockIdx.x == 0) progress[row] = now;
	if (!cuts(draw, stage, n) || now.bad > 0) return;
	if (threadIdx.x < DIGITS) counts[threadIdx.x] = 0;
	__syncthreads(); // no token is counted yet
	const unsigned prefix = shift == 28 ? 0 : now.at.key;
	const int from = blockIdx.x * segment(n), to = min(n, from + segment(n));
	double own[DIGITS];
#pragma unroll
	for (int d = 0; d < DIGITS; d++) own[d] = 0;
	for (int i = from + threadIdx.x; i < to; i += THREADS) {
		const float v = x[i];
		const unsigned key = order_of(v);
		if (shift < 28 && key >> (shift + 4) != prefix) continue;
		const int digit = key >> shift & 15;
		if (shift == 0) atomicAdd(&counts[digit], 1);
		if (key <= now.end.key) continue;
		const double w = weight(draw, stage, now.top, v);
#pragma unroll
		for (int d = 0; d < DIGITS; d++) own[d] += d == digit ? w : 0;
	}
#pragma unroll
	for (int d = 0; d < DIGITS; d++) {
		own[d] = warp_sum(own[d]);
		if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32][d] = own[d];
	}
	__syncthreads(); // the warps' sums and the counts are there
	if (threadIdx.x < DIGITS) {
		Part &part = parts[(size_t)row * gridDim.x + blockIdx.x];
		double sum = 0;
#pragma unroll
		for (int w = 0; w < THREADS / 32; w++) sum += warps[w][threadIdx.x];
		part.sums[threadIdx.x] = sum;
		part.counts[threadIdx.x] = counts[threadIdx.x];
	}
}
HOST_KERNEL(draw_digit)

// The last step, one block per row: ids [rows], or −1 where a logit is not finite. The
// last pass was (last_stage, last_shift), cut into `blocks` segments.
extern "C" __global__ void __launch_bounds__(THREADS)
draw_pick(int *ids, const Part *found, const Progress *before, const float *logits, const Draw *draws, int n, int blocks, int last_stage, int last_shift) {
	__shared__ Shared shared;
	__shared__ int partial[32];
	const int row = blockIdx.x;
	const Draw draw = draws[row];
	const Progress now = advance(before[row], found + (size_t)row * blocks, blocks, draw, last_stage, last_shift, n, shared);
	if (now.bad > 0 || !(draw.temperature > 0)) {
		if (threadIdx.x == 0) ids[row] = now.bad > 0 ? -1 : now.first;
		return;
	}
	// The segment in which the token lies, by the counts of the last digit.
	const int width = (n + blocks - 1) / blocks;
	int seen = 0, block = 0;
	for (; block < blocks - 1; block++) {
		const int more = found[(size_t)row * blocks + block].counts[now.at.key & 15];
		if (seen + more >= now.at.ties) break;
		seen += more;
	}
	const float *x = logits + (size_t)row * n;
	const int to = min(n, (block + 1) * width);
	for (int from = block * width; from < to; from += THREADS) {
		const int i = from + threadIdx.x;
		const bool same = i < to && order_of(x[i]) == now.at.key;
		const Ranks rank = block_ranks(same, false, partial);
		if (same && seen + rank.first == now.at.ties - 1) ids[row] = i;
		seen += rank.firsts;
		if (seen >= now.at.ties) return;
	}
}
HOST_KERNEL(draw_pick)
static_assert(sizeof(Part) == 208 && sizeof(Progress) == 64, "as in kernels/cuda_sample.go");
