// Sparse decoding steps: bounds of pages of keys, estimates from them, and the choice of
// the entries that a step attends to.
//
// The entries of a KV head are counted by position: without a pool position p is row p
// of the cache, with one the rows of the first positions are named and those of the
// others follow each other. A page has size positions. There are no floating-point
// atomics.
#include "logs.h"
#include "order.h"
#include "prims.h"
#include "topk.h"

// What a step chooses from in one KV head.
struct Pages {
	float *lo, *hi;   // [dim, capacity]: minima and maxima of the pages; hi may be null
	const void *rows; // keys or values [.., dim]
	const int *pool;  // rows of the first known positions, or null
	int *reads;       // counts the numbers that an estimate has read, or null
	int known, base;  // row of the first position after them
	int capacity;     // pages that lo and hi have room for
	int from, entries; // positions that are seen
	int want;         // of them to choose
	int recent;       // of these the last, which are chosen whatever their scores
	int size;         // positions per page
	int components;   // dimensions that the estimate reads
	int first;        // page, or position, from which on something is computed

	__device__ int row(int p) const { return !pool ? p : p < known ? pool[p] : base + p - known; }
	__device__ int pages() const { return (entries + size - 1) / size; }
	__device__ bool chooses() const { return want < entries - from; }
};

// Bounds of the pages from first on. Grid: pages by dimensions, KV heads.
template <class T> static __device__ __forceinline__ void page_bounds(const Pages *heads, int dim) {
	Pages h = heads[blockIdx.y];
	size_t i = thread_index();
	int page = h.first + (int)(i / dim), d = (int)(i % dim);
	if (page >= h.pages()) return;
	int p = page * h.size, end = min(h.entries, p + h.size);
	const T *x = (const T *)h.rows + d;
	float lo = to_float(x[(size_t)h.row(p) * dim]), hi = lo;
	for (p++; p < end; p++) {
		float v = to_float(x[(size_t)h.row(p) * dim]);
		lo = fminf(lo, v), hi = fmaxf(hi, v);
	}
	h.lo[(size_t)d * h.capacity + page] = lo;
	if (h.hi) h.hi[(size_t)d * h.capacity + page] = hi;
}
extern "C" __global__ void page_bounds_f32(const Pages *heads, int dim) { page_bounds<float>(heads, dim); }
extern "C" __global__ void page_bounds_bf16(const Pages *heads, int dim) { page_bounds<__nv_bfloat16>(heads, dim); }
HOST_KERNEL(page_bounds_f32)
HOST_KERNEL(page_bounds_bf16)

constexpr int MAX_DIM = 256;

// By what a step estimates.
enum { BOUND, SIGNED, PARTIAL };

// The dimensions that an estimate reads, dims [kvHeads, dim], ascending, and the factors
// of their bounds for every query, factor [heads, dim], of which low [heads, dim] says
// whether it is the lower one. BOUND takes all dimensions and the bound that makes the
// product larger; the others take the components largest ones of the group and divide by
// the temperature of a partial product; SIGNED takes the bound by the sign of the group's
// sum, PARTIAL the lower one. Logits are products times unit. The heads' count of reads is increased by the numbers that
// BOUND reads. One block of at least dim threads per KV head.
extern "C" __global__ void __launch_bounds__(256) sparse_factors(float *factor, int *dims, int *low, const float *q, const Pages *heads, int group, int dim, int how, double unit) {
	__shared__ double sizes[MAX_DIM];
	__shared__ int chosen[MAX_DIM], partial[32];
	Pages h = heads[blockIdx.x];
	if (!h.chooses()) return;
	int i = threadIdx.x, k = h.components;
	q += (size_t)blockIdx.x * group * dim, factor += (size_t)blockIdx.x * group * dim;
	low += (size_t)blockIdx.x * group * dim, dims += (size_t)blockIdx.x * dim;
	if (how == BOUND) {
		int minima = 0, maxima = 0;
		if (i < dim) {
			float scale = (float)unit;
			for (int g = 0; g < group; g++) {
				float v = q[g * dim + i] * scale;
				factor[g * dim + i] = v, low[g * dim + i] = v < 0;
				if (v < 0) minima = 1;
				else maxima = 1;
			}
			dims[i] = i;
		}
		int sides = block_sum(minima + maxima, partial);
		if (h.reads && i == 0) atomicAdd(h.reads, sides * (h.pages() - h.from / h.size));
		return;
	}
	double size = 0, sum = 0;
	if (i < dim) {
		for (int g = 0; g < group; g++) size += fabs((double)q[g * dim + i]), sum += (double)q[g * dim + i];
		sizes[i] = size;
	}
	__syncthreads(); // sizes are there
	if (i < dim) {
		int before = 0;
		for (int j = 0; j < dim; j++) before += sizes[j] > size || (sizes[j] == size && j < i);
		chosen[i] = before < k;
	}
	__syncthreads(); // and what is chosen of them
	if (i < dim && chosen[i]) {
		int at = 0;
		for (int j = 0; j < i; j++) at += chosen[j];
		dims[at] = i;
		for (int g = 0; g < group; g++) low[g * dim + at] = how == PARTIAL || sum < 0;
	}
	for (int g = i; g < group; g += blockDim.x) {
		double some = 0, all = 0;
		for (int j = 0; j < dim; j++) {
			double v = fabs((double)q[g * dim + j]);
			all += v;
			if (chosen[j]) some += v;
		}
		float scale = some == 0 ? 0 : (float)(unit * sqrt(all / some));
		for (int j = 0, at = 0; j < dim; j++)
			if (chosen[j]) factor[g * dim + at++] = q[g * dim + j] * scale;
	}
}
HOST_KERNEL(sparse_factors)

// logits [heads, width] of the pages from that of the first seen position on. Grid:
// pages, query heads. cap, where it is not 0, bounds them (kernels.Attend).
extern "C" __global__ void page_logits(float *logits, const float *factor, const int *dims, const int *low, const Pages *heads, int group, int dim, int width, float cap) {
	int g = blockIdx.y / group;
	Pages h = heads[g];
	int page = h.from / h.size + blockIdx.x * blockDim.x + threadIdx.x;
	if (!h.chooses() || page >= h.pages()) return;
	factor += (size_t)blockIdx.y * dim, low += (size_t)blockIdx.y * dim, dims += (size_t)g * dim;
	float s = 0;
	for (int c = 0; c < h.components; c++) s += factor[c] * (low[c] ? h.lo : h.hi)[(size_t)dims[c] * h.capacity + page];
	logits[(size_t)blockIdx.y * width + page] = cap > 0 ? cap * tanhf(s / cap) : s;
}
HOST_KERNEL(page_logits)

// Makes the logits of every query probabilities, and scores [kvHeads, width] the logarithms
// of their means over the group. sinks [heads] count in the sums, or are null. One block per KV head.
extern "C" __global__ void __launch_bounds__(512) page_probabilities(float *scores, float *logits, const Pages *heads, const float *sinks, int group, int width) {
	__shared__ float partial[32];
	Pages h = heads[blockIdx.x];
	if (!h.chooses()) return;
	int first = h.from / h.size, pages = h.pages();
	scores += (size_t)blockIdx.x * width, logits += (size_t)blockIdx.x * group * width;
	for (int g = 0; g < group; g++) {
		float *x = logits + (size_t)g * width, top = -INFINITY, sum = 0;
		for (int p = first + threadIdx.x; p < pages; p += blockDim.x) top = fmaxf(top, x[p]);
		top = block_max(top, partial);
		for (int p = first + threadIdx.x; p < pages; p += blockDim.x) sum += expf(x[p] - top);
		sum = block_sum(sum, partial);
		sum = sinks ? (float)log((double)sum + exp((double)(sinks[blockIdx.x * group + g] - top))) : logf(sum);
		for (int p = first + threadIdx.x; p < pages; p += blockDim.x) x[p] = x[p] - top - sum;
	}
	for (int p = first + threadIdx.x; p < pages; p += blockDim.x) { // what this thread has written
		scores[p] = log_mean(logits + p, width, group);
		for (int g = 0; g < group; g++) logits[(size_t)g * width + p] = expf(logits[(size_t)g * width + p]);
	}
}
HOST_KERNEL(page_probabilities)

// ids [kvHeads, id_width]: of the positions that are seen the last recent ones and, before
// them, those of the best pages by scores [kvHeads, width], ascending. As many pages as hold
// what is wanted; the worst of them is cut at its end. One block per KV head.
extern "C" __global__ void __launch_bounds__(512) select_pages(int *ids, const float *scores, const Pages *heads, int width, int id_width) {
	__shared__ Digits digits;
	__shared__ int counts[32];
	Pages h = heads[blockIdx.x];
	ids += (size_t)blockIdx.x * id_width;
	if (!h.chooses()) {
		for (int i = threadIdx.x; i < h.entries - h.from; i += blockDim.x) ids[i] = h.from + i;
		return;
	}
	h.entries -= h.recent, h.want -= h.recent;
	for (int i = threadIdx.x; i < h.recent; i += blockDim.x) ids[h.want + i] = h.entries + i;
	if (h.want == 0) return;
	int first = h.from / h.size, pages = h.pages() - first;
	int missing = h.from - first * h.size, short_end = (first + pages) * h.size - h.entries; // of the first and the last page
	const float *x = scores + (size_t)blockIdx.x * width + first;
	unsigned threshold, head = order_of(x[0]), tail = order_of(x[pages - 1]);
	int ties, total;
	bool with_first;
	for (int n = (h.want + h.size - 1) / h.size;; n++) {
		threshold = kth_largest(x, pages, n, &ties, digits);
		int equal = digits.bins[digits.digit]; // scores that are the last digit's
		with_first = head >= threshold;
		bool with_last = tail > threshold || (tail == threshold && equal <= ties);
		__syncthreads(); // the count has been read
		total = n * h.size - (with_first ? missing : 0) - (with_last ? short_end : 0);
		if (total >= h.want) break;
	}
	int above = 0, same = 0; // before this round
	for (int from = 0; from < pages; from += blockDim.x) {
		int i = from + threadIdx.x;
		unsigned key = i < pages ? order_of(x[i]) : 0; // no key is 0
		Ranks r = block_ranks(key > threshold, key == threshold, counts);
		int higher = above + r.first, tied = same + r.second;
		if (key > threshold || (key == threshold && tied < ties)) {
			int p = max(h.from, (first + i) * h.size), end = min(h.entries, (first + i + 1) * h.size);
			int at = (higher + min(tied, ties)) * h.size - (with_first && i > 0 ? missing : 0);
			if (key == threshold && tied == ties - 1) end -= total - h.want; // the worst
			else if (tied >= ties) at -= total - h.want;                    // after it
			for (; p < end; p++) ids[at++] = p;
		}
		above += r.firsts, same += r.seconds;
	}
}
HOST_KERNEL(select_pages)

// sums [kvHeads, dim] += the rows of the positions from first on, in order. Grid:
// dimensions, KV heads.
template <class T> static __device__ __forceinline__ void add_rows(double *sums, const Pages *heads, int dim) {
	Pages h = heads[blockIdx.y];
	int d = blockIdx.x * blockDim.x + threadIdx.x;
	if (d >= dim) return;
	const T *x = (const T *)h.rows + d;
	double sum = sums[blockIdx.y * dim + d];
	for (int p = h.first; p < h.entries; p++) sum += (double)to_float(x[(size_t)h.row(p) * dim]);
	sums[blockIdx.y * dim + d] = sum;
}
extern "C" __global__ void add_rows_f32(double *sums, const Pages *heads, int dim) { add_rows<float>(sums, heads, dim); }
extern "C" __global__ void add_rows_bf16(double *sums, const Pages *heads, int dim) { add_rows<__nv_bfloat16>(sums, heads, dim); }
HOST_KERNEL(add_rows_f32)
HOST_KERNEL(add_rows_bf16)

// out [heads, dim] = α · out + (1 − α) · mean, where α is what a query's probabilities
// [heads, width] of the chosen positions ids [kvHeads, id_width] sum to, and mean that of
// the summed rows. KV heads that choose nothing stay. One block per query head.
extern "C" __global__ void share_mean(float *out, const float *probabilities, const int *ids, const double *sums, const Pages *heads, int group, int dim, int width, int id_width) {
	__shared__ double partial[32];
	int g = blockIdx.x / group;
	Pages h = heads[g];
	if (!h.chooses()) return;
	double alpha = 0;
	for (int i = threadIdx.x; i < h.want; i += blockDim.x) alpha += (double)probabilities[(size_t)blockIdx.x * width + ids[(size_t)g * id_width + i]];
	alpha = block_sum(alpha, partial);
	for (int d = threadIdx.x; d < dim; d += blockDim.x) {
		float *y = out + (size_t)blockIdx.x * dim + d;
		*y = (float)(alpha * *y + (1 - alpha) * sums[(size_t)g * dim + d] / h.entries);
	}
}
HOST_KERNEL(share_mean)
