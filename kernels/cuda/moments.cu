// Moments of the attention that entries get, and selection by two numbers per entry:
// the mean, and the standard deviation, by which some are protected.
//
// Moments are [3, kvHeads, width] in double: rows that have seen an entry, the sum of
// what they paid it (mean over the heads of a group), and the sum of its square.
#include "prims.h"

// How many of the rows of a pass, whose first one has position next, see entry j of a
// head. Positions are given where there is a window; else the last entries are the rows'
// own, in order.
static __device__ __forceinline__ int rows_seeing(const int *positions, int j, int entries, int rows, int next, int window) {
	if (!positions) return min(rows, entries - j);
	int at = positions[j], last = min(next + rows - 1, at + window - 1);
	return max(0, last - max(at, next) + 1);
}

static __device__ __forceinline__ double deviation(double mean, double square) { return sqrt(fmax(0.0, square - mean * mean)); }

// means and spreads [kvHeads, width] from the logarithms [heads, log_width] of the mean
// probability and of the mean squared one over all rows. Grid: columns, KV heads.
extern "C" __global__ void score_moments(float *means, float *spreads, const float *log_mean, const float *log_square, const int *positions,
                                         const int *entries, int width, int log_width, int group, int rows, int next, int window) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= entries[g]) return;
	int seen = max(1, rows_seeing(positions ? positions + (size_t)g * width : nullptr, j, entries[g], rows, next, window));
	float score = 0;
	double mean = 0, square = 0;
#pragma unroll 1
	for (int h = g * group; h < (g + 1) * group; h++) {
		double p = exp((double)log_mean[(size_t)h * log_width + j]);
		score += (float)p, mean += p;
		square += exp((double)log_square[(size_t)h * log_width + j]);
	}
	score /= (float)group;
	double share = (double)rows / (double)seen / (double)group;
	means[(size_t)g * width + j] = score * ((float)rows / (float)seen);
	spreads[(size_t)g * width + j] = (float)deviation(mean * share, square * share);
}
HOST_KERNEL(score_moments)

// The moments of kept entries, ids [kvHeads, id_width] of which the first kept[h] count,
// from their means and spreads over seen [kvHeads, id_width] rows.
extern "C" __global__ void start_moments(double *moments, const float *means, const float *spreads, const int *ids, const int *seen, const int *kept, int width,
                                         int from_width, int id_width) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= kept[g]) return;
	size_t plane = (size_t)gridDim.y * width, at = (size_t)g * width + j, from = (size_t)g * from_width + ids[(size_t)g * id_width + j];
	double rows = seen[(size_t)g * id_width + j], mean = means[from], spread = spreads[from];
	moments[at] = rows, moments[plane + at] = mean * rows, moments[2 * plane + at] = (spread * spread + mean * mean) * rows;
}
HOST_KERNEL(start_moments)

// Takes in one row: moments of entries, of which the first known[h] have some, and the
// means and spreads that they come to. A row that does not see an entry counts nothing.
extern "C" __global__ void add_moments(float *means, float *spreads, double *moments, const float *log_score, const int *entries, const int *known, int width,
                                       int score_width, int log_width, int group) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= entries[g]) return;
	size_t plane = (size_t)gridDim.y * width, at = (size_t)g * width + j;
	double rows = 0, sum = 0, squares = 0;
	if (j < known[g]) rows = moments[at], sum = moments[plane + at], squares = moments[2 * plane + at];
	if (log_score[(size_t)g * group * log_width + j] != -INFINITY) {
		double s = 0, q = 0;
#pragma unroll 1
		for (int h = g * group; h < (g + 1) * group; h++) {
			double p = exp((double)log_score[(size_t)h * log_width + j]);
			s += p, q += p * p;
		}
		rows += 1, sum += s / (double)group, squares += q / (double)group;
	}
	moments[at] = rows, moments[plane + at] = sum, moments[2 * plane + at] = squares;
	double mean = sum / fmax(1.0, rows);
	means[(size_t)g * score_width + j] = (float)mean;
	spreads[(size_t)g * score_width + j] = (float)deviation(mean, squares / fmax(1.0, rows));
}
HOST_KERNEL(add_moments)

// means and spreads of a pass become those of it and of the moments before it, which the
// first known[h] entries have.
extern "C" __global__ void carry_moments(float *means, float *spreads, const double *moments, const int *positions, const int *entries, const int *known,
                                         int width, int from_width, int rows, int next, int window) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= known[g]) return;
	size_t plane = (size_t)gridDim.y * from_width, from = (size_t)g * from_width + j, at = (size_t)g * width + j;
	double more = rows_seeing(positions ? positions + (size_t)g * width : nullptr, j, entries[g], rows, next, window);
	double mean = means[at], spread = spreads[at];
	double all = fmax(1.0, moments[from] + more);
	double sum = moments[plane + from] + mean * more, squares = moments[2 * plane + from] + (spread * spread + mean * mean) * more;
	means[at] = (float)(sum / all), spreads[at] = (float)deviation(sum / all, squares / all);
}
HOST_KERNEL(carry_moments)

// to = from at the first rows[h] of ids [kvHeads, id_width]. Grid: columns, KV heads, 3.
extern "C" __global__ void pick_moments(double *to, const double *from, const int *ids, const int *rows, int to_width, int from_width, int id_width) {
	int g = blockIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= rows[g]) return;
	size_t row = (size_t)blockIdx.z * gridDim.y + g;
	to[row * to_width + j] = from[row * from_width + ids[(size_t)g * id_width + j]];
}
HOST_KERNEL(pick_moments)

// ranked = scores, but infinite at the first kept[h] of ids. One block per KV head.
extern "C" __global__ void __launch_bounds__(512) raise_scores(float *ranked, const float *scores, const int *ids, const int *entries, const int *kept, int width, int id_width) {
	int g = blockIdx.x;
	ranked += (size_t)g * width, scores += (size_t)g * width, ids += (size_t)g * id_width;
#pragma unroll 1
	for (int j = threadIdx.x; j < entries[g]; j += blockDim.x) ranked[j] = scores[j];
	__syncthreads(); // all scores are copied
#pragma unroll 1
	for (int j = threadIdx.x; j < kept[g]; j += blockDim.x) ranked[ids[j]] = INFINITY;
}
HOST_KERNEL(raise_scores)
