// Merging what is evicted into what is kept, in keys and values of one layer: the prompt's
// evicted entries into their most similar keys, the one that a decoding step evicts, and
// values into the most recent ones; and variances, by which layers share a budget.
//
// Sums whose bits decide about something (a threshold, a budget) are in index order, so
// that they are those of the processor; so are the entries that are merged into one.
#include "prims.h"

static __device__ __forceinline__ void store(float *to, double v) { *to = (float)v; }
static __device__ __forceinline__ void store(__nv_bfloat16 *to, double v) { *to = __float2bfloat16((float)v); }

constexpr int SERIAL = 1024; // terms at a time

// The sum of value(i) over i < n in index order, known to all threads of the block.
template <class F> static __device__ __forceinline__ double serial_sum(int n, double (&terms)[SERIAL], double &shared, F value) {
	double sum = 0;
	for (int from = 0; from < n; from += SERIAL) {
#pragma unroll 1
		for (int i = threadIdx.x; i < min(SERIAL, n - from); i += blockDim.x) terms[i] = value(from + i);
		__syncthreads(); // the terms are there
		if (threadIdx.x == 0)
#pragma unroll 4
			for (int i = 0; i < min(SERIAL, n - from); i++) sum += terms[i];
		__syncthreads(); // and have been read
	}
	if (threadIdx.x == 0) shared = sum;
	__syncthreads(); // the sum is known
	sum = shared;
	__syncthreads(); // to all
	return sum;
}

// Scores of one layer.
struct LayerScores {
	const float *scores; // [heads, width]
	int width, most;     // most entries of a head
};

// columns [layers, width]: the means over heads of the scores of each entry, of heads with
// entries [layers, heads]. Grid: columns, layers.
extern "C" __global__ void score_columns(double *columns, const LayerScores *layers, const int *entries, int heads, int width) {
	LayerScores l = layers[blockIdx.y];
	int j = blockIdx.x * blockDim.x + threadIdx.x;
	if (j >= l.most) return;
	double sum = 0;
#pragma unroll 1
	for (int h = 0; h < heads; h++)
		if (j < entries[blockIdx.y * heads + h]) sum += (double)l.scores[(size_t)h * l.width + j] / (double)heads;
	columns[(size_t)blockIdx.y * width + j] = sum;
}
HOST_KERNEL(score_columns)

// variances [layers] of the columns. One block per layer.
extern "C" __global__ void __launch_bounds__(256) column_variance(double *variances, const double *columns, const LayerScores *layers, int width) {
	__shared__ double terms[SERIAL], shared;
	int n = layers[blockIdx.x].most;
	const double *x = columns + (size_t)blockIdx.x * width;
	double mean = serial_sum(n, terms, shared, [=](int i) { return x[i] / (double)n; });
	double sum = serial_sum(n, terms, shared, [=](int i) { return __dmul_rn(x[i] - mean, x[i] - mean); });
	if (threadIdx.x == 0) variances[blockIdx.x] = sum / (double)n;
}
HOST_KERNEL(column_variance)

// The pairs of a KV head: ids are the rows that are kept, ascending.
struct Merged {
	void *k, *v; // [entries, dim]
	const int *ids;
	int kept, entries;

	__device__ int evicted() const { return entries - kept; }
	// The row of the e-th entry that is not kept: e and the kept ones before it.
	__device__ int row(int e) const {
		int from = 0, to = kept;
		while (from < to) {
			int mid = (from + to) / 2;
			if (ids[mid] - mid > e) to = mid;
			else from = mid + 1;
		}
		return e + from;
	}
};

// norms [kvHeads, width] of all keys. Grid: 8 keys, KV heads; a warp per key.
template <class T> static __device__ __forceinline__ void key_norms(double *norms, const Merged *heads, int width, int dim) {
	Merged h = heads[blockIdx.y];
	int j = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
	if (j >= h.entries) return;
	const T *k = (const T *)h.k + (size_t)j * dim;
	double sum = 0;
#pragma unroll 1
	for (int d = lane; d < dim; d += 32) sum += (double)to_float(k[d]) * (double)to_float(k[d]);
	sum = warp_sum(sum);
	if (lane == 0) norms[(size_t)blockIdx.y * width + j] = sqrt(sum);
}

static __device__ __forceinline__ double cosine(double product, double norms) { return norms > 0 ? product / norms : 0; }

// Keys and dimensions of a tile; a block is SIDE × SIDE threads of 4 × 4 products, of which
// PARTS then go along a row.
constexpr int TILE = 64, STEP = 16, SIDE = 16, PARTS = SIDE * SIDE / TILE;

// The tiles of a block that compares, and what its threads have found.
struct Compared {
	float rows[STEP][TILE + 4], columns[STEP][TILE + 4];
	float products[TILE][TILE + 1];
	double row_norms[TILE], column_norms[TILE], tops[TILE][PARTS];
	int row_ids[TILE], column_ids[TILE], places[TILE][PARTS];
};

// The kept key that is most similar to each evicted one, of equal ones the first:
// nearest [kvHeads, width] are indices of ids, similar [kvHeads, width] the cosines. No
// product is kept: a block has TILE evicted keys and goes along the kept ones. Grid: tiles,
// KV heads.
template <class T> static __device__ __forceinline__ void nearest_keys(int *nearest, double *similar, const Merged *heads, const double *norms, int width, int norms_width, int dim,
                                                                                   Compared &s) {
	Merged h = heads[blockIdx.y];
	int evicted = h.evicted(), first = blockIdx.x * TILE, t = threadIdx.x, x = t % SIDE, y = t / SIDE;
	if (first >= evicted || h.kept == 0) return;
	const T *k = (const T *)h.k;
	norms += (size_t)blockIdx.y * norms_width;
	if (t < TILE) {
		int id = h.row(min(first + t, evicted - 1));
		s.row_ids[t] = id, s.row_norms[t] = norms[id];
	}
	double top = -INFINITY;
	int at = 0, row = t / PARTS, part = t % PARTS;
	for (int from = 0; from < h.kept; from += TILE) {
		if (t < TILE) { // read by others before the barrier below
			int id = h.ids[min(from + t, h.kept - 1)];
			s.column_ids[t] = id, s.column_norms[t] = norms[id];
		}
		float acc[4][4] = {};
		for (int d = 0; d < dim; d += STEP) {
			__syncthreads(); // ids are there, and the tiles before have been read
#pragma unroll 2
			for (int i = t; i < TILE * STEP; i += SIDE * SIDE) {
				int r = i / STEP, c = i % STEP;
				bool in = d + c < dim;
				s.rows[c][r] = in ? to_float(k[(size_t)s.row_ids[r] * dim + d + c]) : 0;
				s.columns[c][r] = in ? to_float(k[(size_t)s.column_ids[r] * dim + d + c]) : 0;
			}
			__syncthreads(); // the tiles are there
#pragma unroll 4
			for (int c = 0; c < STEP; c++) {
				float a[4], b[4];
#pragma unroll
				for (int i = 0; i < 4; i++) a[i] = s.rows[c][4 * y + i], b[i] = s.columns[c][4 * x + i];
#pragma unroll
				for (int i = 0; i < 4; i++)
#pragma unroll
					for (int j = 0; j < 4; j++) acc[i][j] += a[i] * b[j];
			}
		}
#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int j = 0; j < 4; j++) s.products[4 * y + i][4 * x + j] = acc[i][j];
		__syncthreads(); // the products are there
#pragma unroll 1
		for (int i = part * (TILE / PARTS); i < min((part + 1) * (TILE / PARTS), h.kept - from); i++) {
			double u = cosine((double)s.products[row][i], s.row_norms[row] * s.column_norms[i]);
			if (u > top) top = u, at = from + i;
		}
		__syncthreads(); // the norms have been read
	}
	s.tops[row][part] = top, s.places[row][part] = at;
	__syncthreads(); // all columns were seen
	if (t >= TILE || first + t >= evicted) return;
	top = s.tops[t][0], at = s.places[t][0];
#pragma unroll 1
	for (int i = 1; i < PARTS; i++)
		if (s.tops[t][i] > top || (s.tops[t][i] == top && s.places[t][i] < at)) top = s.tops[t][i], at = s.places[t][i];
	nearest[(size_t)blockIdx.y * width + first + t] = at, similar[(size_t)blockIdx.y * width + first + t] = top;
}

// thresholds [kvHeads]: the mean similarity of what is evicted, NaN of nothing. One block
// per KV head.
extern "C" __global__ void __launch_bounds__(256) mean_similarity(double *thresholds, const double *similar, const Merged *heads, int width) {
	__shared__ double terms[SERIAL], shared;
	Merged h = heads[blockIdx.x];
	int n = h.kept == 0 ? 0 : h.evicted();
	const double *x = similar + (size_t)blockIdx.x * width;
	double mean = serial_sum(n, terms, shared, [=](int i) { return x[i] / (double)n; });
	if (threadIdx.x == 0) thresholds[blockIdx.x] = n == 0 ? NAN : mean;
}
HOST_KERNEL(mean_similarity)

constexpr int MERGE_WARPS = 8, NAMES = 1024, PER_LANE = 8; // heads of up to 256 elements
constexpr double E = 2.718281828459045;

// Merges the evicted pairs whose similarity reaches the threshold into their nearest kept
// ones: x_j = (e·x_j + Σ exp(u_i)·x_i) / (e + Σ exp(u_i)), in the order of i. A warp per
// kept entry looks for its own among all. Grid: MERGE_WARPS entries, KV heads, keys and
// values.
template <class T> static __device__ __forceinline__ void merge_pairs(const Merged *heads, const int *nearest, const double *similar, const double *thresholds, int width, int dim,
                                                                                  int (&names)[NAMES]) {
	Merged h = heads[blockIdx.y];
	int evicted = h.evicted(), lane = threadIdx.x % 32, first = blockIdx.x * MERGE_WARPS, j = first + threadIdx.x / 32;
	if (first >= h.kept || evicted == 0) return;
	nearest += (size_t)blockIdx.y * width, similar += (size_t)blockIdx.y * width;
	T *x = (T *)(blockIdx.z == 0 ? h.k : h.v), *to = x + (j < h.kept ? (size_t)h.ids[j] * dim : 0);
	double threshold = thresholds[blockIdx.y], z = E, sums[PER_LANE];
#pragma unroll
	for (int i = 0; i < PER_LANE; i++) sums[i] = lane + 32 * i < dim ? E * (double)to_float(to[lane + 32 * i]) : 0;
	bool any = false;
	for (int from = 0; from < evicted; from += NAMES) {
		int n = min(NAMES, evicted - from);
		__syncthreads(); // the names before have been read
#pragma unroll 1
		for (int i = threadIdx.x; i < n; i += blockDim.x) names[i] = nearest[from + i];
		__syncthreads(); // the names are there
		if (j >= h.kept) continue;
#pragma unroll 1
		for (int i = 0; i < n; i += 32) {
			unsigned hits = __ballot_sync(~0u, i + lane < n && names[i + lane] == j);
			for (; hits; hits &= hits - 1) {
				int e = from + i + __popc((hits & (~hits + 1)) - 1); // the lowest bit
				if (!(similar[e] >= threshold)) continue;
				double w = exp(similar[e]);
				const T *row = x + (size_t)h.row(e) * dim;
				z += w, any = true;
#pragma unroll
				for (int i = 0; i < PER_LANE; i++)
					if (lane + 32 * i < dim) sums[i] += w * (double)to_float(row[lane + 32 * i]);
			}
		}
	}
	if (!any) return;
	double share = 1 / z;
#pragma unroll
	for (int i = 0; i < PER_LANE; i++)
		if (lane + 32 * i < dim) store(to + lane + 32 * i, sums[i] * share);
}

// The row of the one entry that is not kept; all threads of the block ask.
static __device__ __forceinline__ int left_out(const Merged &h, int &shared) {
	if (threadIdx.x == 0) shared = h.kept;
	__syncthreads(); // unless it comes before a kept one
#pragma unroll 1
	for (int i = threadIdx.x; i < h.kept; i += blockDim.x)
		if (h.ids[i] != i && (i == 0 || h.ids[i - 1] == i - 1)) shared = i;
	__syncthreads(); // it is found
	return shared;
}

// similar [kvHeads, width]: the cosines of all keys with that of the one entry that is
// evicted, NaN for itself. Grid: 8 keys, KV heads; a warp per key.
template <class T> static __device__ __forceinline__ void step_similar(double *similar, const Merged *heads, int width, int dim, int &shared) {
	Merged h = heads[blockIdx.y];
	if (h.evicted() != 1) return;
	int out = left_out(h, shared), j = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
	if (j >= h.entries) return;
	const T *a = (const T *)h.k + (size_t)out * dim, *b = (const T *)h.k + (size_t)j * dim;
	double product = 0, aa = 0, bb = 0;
#pragma unroll 1
	for (int d = lane; d < dim; d += 32) {
		double x = to_float(a[d]), y = to_float(b[d]);
		product += x * y, aa += x * x, bb += y * y;
	}
	product = warp_sum(product), aa = warp_sum(aa), bb = warp_sum(bb);
	if (lane == 0) similar[(size_t)blockIdx.y * width + j] = j == out ? NAN : cosine(product, sqrt(aa) * sqrt(bb));
}

// What the threads of a block have found.
struct Best {
	double tops[256];
	int places[256], out;
};

// Merges or drops that entry, after the threshold has followed its best similarity. One
// block per KV head.
template <class T> static __device__ __forceinline__ void merge_one(const Merged *heads, const double *similar, double *thresholds, int width, int dim, double beta, Best &s) {
	Merged h = heads[blockIdx.x];
	if (h.evicted() != 1 || h.kept == 0) return;
	int out = left_out(h, s.out), t = threadIdx.x;
	similar += (size_t)blockIdx.x * width;
	double best = -INFINITY;
	int at = out == 0 ? 1 : 0;
#pragma unroll 1
	for (int j = t; j < h.entries; j += blockDim.x)
		if (similar[j] > best) best = similar[j], at = j; // not itself: NaN
	s.tops[t] = best, s.places[t] = at;
	__syncthreads(); // every thread has seen its own
#pragma unroll 1
	for (int n = 128; n > 0; n /= 2) {
		if (t < n && (s.tops[t + n] > s.tops[t] || (s.tops[t + n] == s.tops[t] && s.places[t + n] < s.places[t]))) s.tops[t] = s.tops[t + n], s.places[t] = s.places[t + n];
		__syncthreads(); // half as many are left
	}
	best = s.tops[0], at = s.places[0];
	double threshold = thresholds[blockIdx.x];
	// Without contraction: as on the processor, also where both are the same.
	threshold = threshold != threshold ? best : __dadd_rn(__dmul_rn(beta, best), __dmul_rn(1 - beta, threshold));
	__syncthreads(); // the old threshold has been read
	if (t == 0) thresholds[blockIdx.x] = threshold;
	if (best < threshold) return;
	double w = exp(best), z = E + w;
	T *k = (T *)h.k, *v = (T *)h.v;
#pragma unroll 1
	for (int d = t; d < dim; d += blockDim.x) {
		size_t to = (size_t)at * dim + d, from = (size_t)out * dim + d;
		store(k + to, (E * (double)to_float(k[to]) + w * (double)to_float(k[from])) / z);
		store(v + to, (E * (double)to_float(v[to]) + w * (double)to_float(v[from])) / z);
	}
}

// The values of a KV head, of which those between the first sink and the last recent go.
struct Values {
	void *v; // [entries, dim]
	int entries, sink, recent, unused;
};

// merges [kvHeads, outs]: whether the values that go are merged: where the draw [kvHeads,
// outs] is below the share of the entry's sum [kvHeads, width] in the mean of the recent
// ones. No order is kept in that mean: a draw does not meet its last bit. One block per KV
// head.
extern "C" __global__ void __launch_bounds__(256) draw_merges(int *merges, const float *sums, const double *draws, const Values *heads, int width, int outs) {
	__shared__ double partial[32];
	Values h = heads[blockIdx.x];
	sums += (size_t)blockIdx.x * width, draws += (size_t)blockIdx.x * outs, merges += (size_t)blockIdx.x * outs;
	double mean = 0;
#pragma unroll 1
	for (int j = max(0, h.entries - h.recent) + threadIdx.x; j < h.entries; j += blockDim.x) mean += (double)sums[j] / (double)h.recent;
	mean = block_sum(mean, partial);
#pragma unroll 1
	for (int i = threadIdx.x; i < outs; i += blockDim.x) {
		double sum = i < h.entries - h.sink - h.recent ? (double)sums[h.sink + i] : 0;
		merges[i] = sum > 0 && draws[i] < fmin(1.0, sum / mean);
	}
}
HOST_KERNEL(draw_merges)

// Adds the values that are merged to each of the recent ones, divided by their number, one
// after the other. Grid: elements, KV heads.
template <class T> static __device__ __forceinline__ void merge_recent(const Values *heads, const int *merges, int outs, int dim) {
	Values h = heads[blockIdx.y];
	size_t i = thread_index();
	if (i >= (size_t)h.recent * dim) return;
	T *v = (T *)h.v, *to = v + (size_t)(h.entries - h.recent) * dim + i;
	merges += (size_t)blockIdx.y * outs;
	v += (size_t)h.sink * dim + i % dim;
#pragma unroll 1
	for (int out = 0; out < h.entries - h.sink - h.recent; out++)
		if (merges[out]) store(to, (double)to_float(*to) + (double)to_float(v[(size_t)out * dim]) / (double)h.recent);
}

#define MERGE_KERNELS(type, suffix) \
	extern "C" __global__ void __launch_bounds__(256) key_norms_##suffix(double *norms, const Merged *heads, int width, int dim) { \
		key_norms<type>(norms, heads, width, dim); \
	} \
	extern "C" __global__ void __launch_bounds__(256) nearest_keys_##suffix(int *nearest, double *similar, const Merged *heads, const double *norms, int width, int norms_width, int dim) { \
		__shared__ Compared shared; \
		nearest_keys<type>(nearest, similar, heads, norms, width, norms_width, dim, shared); \
	} \
	extern "C" __global__ void __launch_bounds__(256, 2) merge_pairs_##suffix(const Merged *heads, const int *nearest, const double *similar, const double *thresholds, int width, int dim) { \
		__shared__ int names[NAMES]; \
		merge_pairs<type>(heads, nearest, similar, thresholds, width, dim, names); \
	} \
	extern "C" __global__ void __launch_bounds__(256) step_similar_##suffix(double *similar, const Merged *heads, int width, int dim) { \
		__shared__ int out; \
		step_similar<type>(similar, heads, width, dim, out); \
	} \
	extern "C" __global__ void __launch_bounds__(256) merge_one_##suffix(const Merged *heads, const double *similar, double *thresholds, int width, int dim, double beta) { \
		__shared__ Best shared; \
		merge_one<type>(heads, similar, thresholds, width, dim, beta, shared); \
	} \
	extern "C" __global__ void merge_recent_##suffix(const Values *heads, const int *merges, int outs, int dim) { \
		merge_recent<type>(heads, merges, outs, dim); \
	} \
	HOST_KERNEL(key_norms_##suffix) \
	HOST_KERNEL(nearest_keys_##suffix) \
	HOST_KERNEL(merge_pairs_##suffix) \
	HOST_KERNEL(step_similar_##suffix) \
	HOST_KERNEL(merge_one_##suffix) \
	HOST_KERNEL(merge_recent_##suffix)

MERGE_KERNELS(float, f32)
MERGE_KERNELS(__nv_bfloat16, bf16)
