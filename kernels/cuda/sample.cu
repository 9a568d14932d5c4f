// Sampling: one block per row of logits chooses a token by the rules of the processor's
// sampler, with the random number that the host has drawn.
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

struct Row {
	const float *x;
	int n;
	float top;
	double temperature; // 0: every weight is 1, which counts
};

static __device__ __forceinline__ double weight(const Row &r, float v) {
	return r.temperature == 0 ? 1 : exp((double)(v - r.top) / r.temperature);
}

const int DIGITS = 16;

// The sums over the tokens up to the place end whose keys begin with prefix, by the next
// digit at shift. All threads get them; the order of the sums depends on n alone.
static __device__ __forceinline__ void digit_sums(double (&sums)[DIGITS], const Row &r, const Place &end, unsigned prefix, int shift, double (&warps)[16][DIGITS]) {
	double own[DIGITS];
#pragma unroll
	for (int d = 0; d < DIGITS; d++) own[d] = 0;
#pragma unroll 2
	for (int i = threadIdx.x; i < r.n; i += blockDim.x) {
		float v = r.x[i];
		unsigned key = order_of(v);
		if (key <= end.key || (shift < 28 && key >> (shift + 4) != prefix)) continue;
		double w = weight(r, v);
		int digit = key >> shift & 15;
#pragma unroll
		for (int d = 0; d < DIGITS; d++) own[d] += d == digit ? w : 0;
	}
#pragma unroll
	for (int d = 0; d < DIGITS; d++) {
		own[d] = warp_sum(own[d]);
		if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32][d] = own[d];
	}
	double last = 0; // the weight of those at the end, which have one key
	if (end.ties > 0 && (shift == 28 || end.key >> (shift + 4) == prefix)) last = end.ties * weight(r, of_order(end.key));
	__syncthreads(); // the warps' sums are there
#pragma unroll
	for (int d = 0; d < DIGITS; d++) {
		double s = d == (int)(end.key >> shift & 15) ? last : 0;
		for (int w = 0; w < (int)blockDim.x / 32; w++) s += warps[w][d];
		sums[d] = s;
	}
	__syncthreads(); // and have been read
}

// The sum of all weights up to end.
static __device__ __forceinline__ double weights_to(const Row &r, const Place &end, double (&warps)[16][DIGITS]) {
	double sums[DIGITS], sum = 0;
	digit_sums(sums, r, end, 0, 28, warps);
#pragma unroll
	for (int d = DIGITS - 1; d >= 0; d--) sum += sums[d];
	return sum;
}

// The place at which the sum of the weights up to end reaches target, or exceeds it; the
// last place that has a weight where rounding leaves none.
static __device__ __forceinline__ Place descend(const Row &r, const Place &end, double target, bool exceed, double (&warps)[16][DIGITS], int (&partial)[32]) {
	Place at = {0, 0, 0};
#pragma unroll 1
	for (int shift = 28; shift >= 0; shift -= 4) {
		double sums[DIGITS], sum = at.before;
		digit_sums(sums, r, end, at.key, shift, warps);
		int digit = 0;
		bool found = false;
#pragma unroll
		for (int d = DIGITS - 1; d >= 0; d--) {
			if (found || sums[d] == 0) continue;
			digit = d, at.before = sum;
			sum += sums[d];
			found = exceed ? sum > target : sum >= target;
		}
		at.key = at.key << 4 | (unsigned)digit;
	}
	int same = end.ties;
	if (at.key != end.key) {
		same = 0;
		for (int i = threadIdx.x; i < r.n; i += blockDim.x) same += order_of(r.x[i]) == at.key;
		same = block_sum(same, partial);
	}
	double steps = (target - at.before) / weight(r, of_order(at.key));
	steps = exceed ? floor(steps) + 1 : ceil(steps);
	at.ties = steps >= same ? same : steps < 1 ? 1 : (int)steps;
	return at;
}

// ids [rows]: the token drawn from each row of logits [rows, n], or −1 where one is not
// finite.
extern "C" __global__ void __launch_bounds__(512) draw_tokens(int *ids, const float *logits, const Draw *draws, int n) {
	__shared__ double warps[16][DIGITS];
	__shared__ int partial[32];
	__shared__ float tops[32];
	Draw draw = draws[blockIdx.x];
	Row r = {logits + (size_t)blockIdx.x * n, n, -INFINITY, draw.temperature};
	int bad = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		float v = r.x[i];
		bad += v - v != 0;
		r.top = fmaxf(r.top, v);
	}
	bad = block_sum(bad, partial);
	r.top = block_max(r.top, tops);
	if (bad > 0) {
		if (threadIdx.x == 0) ids[blockIdx.x] = -1;
		return;
	}
	Place at = {order_of(r.top), 1, 0};
	Place end = {0, 0, 0}; // the tokens that count: all, since no key is 0
	double sum = 0;        // of their weights
#pragma unroll 1
	for (int stage = 0; stage < 3 && draw.temperature > 0; stage++) { // top-k, top-p, draw
		bool cut = stage == 0 ? draw.top_k > 0 && draw.top_k < n : stage == 2 || (draw.top_p > 0 && draw.top_p < 1);
		if (cut) {
			Row by = r;
			if (stage == 0) by.temperature = 0;
			at = descend(by, end, stage == 0 ? draw.top_k : (stage == 1 ? draw.top_p : draw.u) * sum, stage == 2, warps, partial);
			end = at;
		}
		if (stage == 0) sum = weights_to(r, end, warps);
		if (stage == 1 && cut) sum = end.before + end.ties * weight(r, of_order(end.key));
	}
	int seen = 0; // of the key, before this round
	for (int from = 0; from < n; from += blockDim.x) {
		int i = from + threadIdx.x;
		bool same = i < n && order_of(r.x[i]) == at.key;
		Ranks rank = block_ranks(same, false, partial);
		if (same && seen + rank.first == at.ties - 1) ids[blockIdx.x] = i;
		seen += rank.firsts;
		if (seen >= at.ties) return;
	}
}
HOST_KERNEL(draw_tokens)
