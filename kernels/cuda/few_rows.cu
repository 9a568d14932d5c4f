// Linear layers of few rows, which wait for memory alone: y [rows, n] = alpha · x [rows, k]
// · wᵀ + beta · y + bias for weights [n, k] as they are stored, summed in float32. One
// launch takes up to three weights that read the same rows, or a gate and what it gates.
//
// A warp has the weights of four columns of y and reads 512 bytes of each at a time, which
// are on their way for one step or two; rows x go through shared memory in chunks of k that
// the eight warps of a block share. Where columns are few, several warps (ways) share them
// and every one takes its part of k, and their sums are added in order. The order of a sum
// depends on k and the number of ways alone: the same for every row, however many there are.
#include "pointwise.h"

constexpr int WARPS = 8;   // of a block
constexpr int COLUMNS = 4; // of a warp
constexpr int CHUNK = 4 * WARPS * 32; // of k: four elements for every thread

template <class T> struct Load {
	static constexpr int EACH = 16 / sizeof(T); // elements
};

// Elements [4·part, 4·part + 4) of 16 bytes of weights.
static __device__ __forceinline__ void unpack(float (&v)[4], const uint4 &u, int, const float *) { memcpy(v, &u, 16); }
static __device__ __forceinline__ void unpack(float (&v)[4], const uint4 &u, int part, const __nv_bfloat16 *) {
	unsigned pairs[2] = {part ? u.z : u.x, part ? u.w : u.y};
	for (int i = 0; i < 2; i++) {
		unsigned low = pairs[i] << 16, high = pairs[i] & 0xffff0000u;
		memcpy(&v[2 * i], &low, 4);
		memcpy(&v[2 * i + 1], &high, 4);
	}
}
static __device__ __forceinline__ void unpack(float (&v)[4], const uint4 &u, int part, const __half *) {
	unsigned pairs[2] = {part ? u.z : u.x, part ? u.w : u.y};
	__half h[4];
	memcpy(h, pairs, 8);
	for (int i = 0; i < 4; i++) v[i] = __half2float(h[i]);
}

// One weight of a launch, and what becomes of it.
template <class T> struct Part {
	const T *w;        // [n, k], 16-byte aligned
	const float *bias; // [n] or null
	float *y;          // [rows, n]
	int n, split;      // 1 << split ways
	__device__ __forceinline__ int blocks() const {
		int columns = (WARPS >> split) * COLUMNS;
		return (n + columns - 1) / columns;
	}
	// A sum that is whole becomes a number of y.
	__device__ __forceinline__ float finish(float sum, int r, int column, float alpha, float beta) const {
		float v = alpha * sum;
		if (beta != 0) v += beta * y[(size_t)r * n + column];
		return bias ? v + bias[column] : v;
	}
};

// Shared memory of a block: the sums of warps, and what is needed at the end, since registers
// bound the loads on their way.
template <class T, int ROWS> struct Shared {
	float partial[WARPS][COLUMNS * ROWS];
	Part<T> part;
};

// With up given, y = silu(x · wᵀ + bias) · (x · upᵀ + up_bias). k is a multiple of a load's
// elements.
template <class T, int ROWS>
static __device__ __forceinline__ void few_rows(Part<T> part, int block, const T *up, const float *up_bias, const float *x, int rows, int k,
                                                float alpha, float beta, Shared<T, ROWS> &shared) {
	constexpr int EACH = Load<T>::EACH, GROUP = 32 * EACH, VALUES = COLUMNS * ROWS;
	constexpr int DEPTH = ROWS > 1 ? 2 : 3; // steps of weights in registers
	DYNAMIC_SHARED(float, staged); // [2][ROWS][CHUNK]
	grid_release();
	if (threadIdx.x == 0) shared.part = part;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, ways = 1 << part.split, way = warp & (ways - 1);
	const int sets = WARPS >> part.split, own = up ? COLUMNS / 2 : COLUMNS, first = (block * sets + (warp >> part.split)) * own;
	const T *row[COLUMNS];
#pragma unroll
	for (int c = 0; c < COLUMNS; c++) {
		int column = min(first + (up ? c % (COLUMNS / 2) : c), part.n - 1); // those past the end are not written
		row[c] = (up && c >= COLUMNS / 2 ? up : part.w) + (size_t)column * k + way * GROUP + lane * EACH;
	}
	// A step is a group of every way, from element at on.
	const int step = ways * GROUP, left = k - way * GROUP - lane * EACH;
	auto load = [&](uint4 (&w)[COLUMNS], int at) {
#pragma unroll
		for (int c = 0; c < COLUMNS; c++) {
			w[c] = uint4{0, 0, 0, 0};
			if (at < left) w[c] = __ldcs(reinterpret_cast<const uint4 *>(row[c] + at));
		}
	};
	// A thread copies four elements of every row. In a group, the first four elements of all
	// lanes lie together, and so do the second four: a warp reads 512 bytes without conflicts.
	const int group_to = threadIdx.x / (GROUP / 4) * GROUP, in = threadIdx.x % (GROUP / 4);
	float *to = staged + group_to + in % (EACH / 4) * 128 + in / (EACH / 4) * 4;
	auto stage = [&](int chunk) { // chunk: its first element
		int at = chunk + 4 * threadIdx.x, buffer = chunk & CHUNK;
		if (chunk + group_to < k) { // someone reads the group
			const float *from = x + at;
#pragma unroll 1 // the binary would be larger without a limit
			for (int r = 0; r < ROWS; r++) {
				bool there = r < rows && at < k;
				cp_async_16(to + buffer * ROWS + r * CHUNK, there ? from : x, there ? 16 : 0);
				from += k;
			}
		}
		cp_async_commit();
	};

	float acc[VALUES];
#pragma unroll
	for (int i = 0; i < VALUES; i++) acc[i] = 0;
	uint4 w[DEPTH][COLUMNS];
#pragma unroll
	for (int d = 0; d < DEPTH - 1; d++) load(w[d], d * step);
	grid_wait(); // weights do not change, the rows are another kernel's
	stage(0);
	for (int from = 0; from < k; from += DEPTH * step) {
#pragma unroll
		for (int d = 0; d < DEPTH; d++) {
			const int at = from + d * step, chunk = at & ~(CHUNK - 1);
			if (at >= k) break;
			load(w[(d + DEPTH - 1) % DEPTH], at + (DEPTH - 1) * step);
			if (at == chunk) {
				cp_async_wait<0>();
				__syncthreads(); // the chunk is there, and the one before has been read
				if (chunk + CHUNK < k) stage(chunk + CHUNK);
			}
			if (at + way * GROUP >= k) continue;
			const float *rows_here = staged + (chunk & CHUNK) * ROWS + at - chunk + way * GROUP + lane * 4;
#pragma unroll
			for (int p = 0; p < EACH / 4; p++) {
				float v[COLUMNS][4];
#pragma unroll
				for (int c = 0; c < COLUMNS; c++) unpack(v[c], w[d][c], p, part.w);
#pragma unroll
				for (int r = 0; r < ROWS; r++) {
					float4 a = *reinterpret_cast<const float4 *>(rows_here + r * CHUNK + p * 128);
#pragma unroll
					for (int c = 0; c < COLUMNS; c++) {
						float &sum = acc[c * ROWS + r];
						sum = fmaf(v[c][3], a.w, fmaf(v[c][2], a.z, fmaf(v[c][1], a.y, fmaf(v[c][0], a.x, sum))));
					}
				}
			}
		}
	}
	if (way * GROUP < k) { // else this way has nothing
		scatter_sums<VALUES, 32>(acc);
		if (lane % (32 / VALUES) == 0) shared.partial[warp][lane / (32 / VALUES)] = acc[0];
	} else if (lane < VALUES) {
		shared.partial[warp][lane] = 0;
	}
	__syncthreads(); // the sums of all ways are there
	part = shared.part;
	const int set = threadIdx.x / VALUES, value = threadIdx.x % VALUES, r = value % ROWS;
	const int column = (block * sets + set) * own + value / ROWS;
	if (set >= sets || r >= rows || value / ROWS >= own || column >= part.n) return;
	float sum = 0, up_sum = 0;
#pragma unroll 1
	for (int i = set << part.split, end = i + (1 << part.split); i < end; i++) {
		sum += shared.partial[i][value];
		if (up) up_sum += shared.partial[i][value + VALUES / 2];
	}
	float v = part.finish(sum, r, column, alpha, beta);
	if (up) {
		if (up_bias) up_sum += up_bias[column];
		v = v * sigmoid(v) * up_sum;
	}
	part.y[(size_t)r * part.n + column] = v;
}

// The blocks of up to three weights follow each other; those that are not there have no
// columns. gated: w1 is what w0 gates.
template <class T> static __device__ __forceinline__ void choose(Part<T> &part, int &block, const Part<T> &next) {
	if (next.n == 0 || block < part.blocks()) return;
	block -= part.blocks();
	part = next;
}
#define FEW_ROWS(name, T, ROWS)                                                                                                          \
	extern "C" __global__ void __launch_bounds__(WARPS * 32, 2)                                                                          \
	name(const T *w0, const float *bias0, float *y0, int n0, int split0, const T *w1, const float *bias1, float *y1, int n1, int split1, \
	     const T *w2, const float *bias2, float *y2, int n2, int split2, const float *x, int rows, int k, float alpha, float beta,       \
	     int gated) {                                                                                                                    \
		__shared__ Shared<T, ROWS> shared;                                                                                               \
		Part<T> part = {w0, bias0, y0, n0, split0};                                                                                      \
		int block = blockIdx.x;                                                                                                          \
		if (!gated) {                                                                                                                    \
			choose(part, block, {w1, bias1, y1, n1, split1});                                                                            \
			if (part.w == w1) choose(part, block, {w2, bias2, y2, n2, split2});                                                          \
		}                                                                                                                                \
		few_rows<T, ROWS>(part, block, gated ? w1 : nullptr, gated ? bias1 : nullptr, x, rows, k, alpha, beta, shared);                          \
	}                                                                                                                                    \
	HOST_KERNEL(name)

FEW_ROWS(few_rows_f32_1, float, 1)
FEW_ROWS(few_rows_f32_8, float, 8)
FEW_ROWS(few_rows_bf16_1, __nv_bfloat16, 1)
FEW_ROWS(few_rows_bf16_4, __nv_bfloat16, 4)
FEW_ROWS(few_rows_bf16_8, __nv_bfloat16, 8)
FEW_ROWS(few_rows_f16_1, __half, 1)
FEW_ROWS(few_rows_f16_8, __half, 8)
