// Linear layers of few rows by weights in blocks, which are read as they are stored: y [rows, n]
// = alpha · x [rows, k] · wᵀ + beta · y + bias. One launch takes up to three weights that read
// the same rows, or a gate and what it gates.
//
// A warp has 32 columns of y. It copies 128 or 256 elements of each to shared memory while it
// multiplies those before, and meets no other warp on its way. Integers go to tensor cores as
// bf16, which they are exactly, and so do rows x as sums of two bf16 numbers, so that 17 bits of
// them count; the sums of 32 elements (or 16) are scaled and added in float32. Several warps
// (ways) share k, and their sums are added in order. The order of a sum depends on k and the
// number of ways alone: the same for every row, however many there are.
#include "blocks.h"
#include "pointwise.h"

namespace few_blocks {

constexpr int COLUMNS = 32; // of a warp
constexpr int TILE = 8;     // rows that tensor cores multiply at once
constexpr int STAGES = 2;   // chunks in shared memory

// How much of a row of weights is copied at once, and the room that it has: it begins where
// 16 bytes do, so that blocks may begin later; an odd number of pieces keeps the reads of
// eight rows apart.
template <class F> struct Chunk {
	static constexpr int ELEMS = F::ELEMS == 256 || F::BYTES <= 20 ? 256 : 128, BYTES = ELEMS / F::ELEMS * F::BYTES;
	static constexpr int PIECES = F::ALIGNED ? BYTES / 16 : (BYTES + 14 + F::BYTES % 2 + 15) / 16, STRIDE = 16 * (PIECES | 1);
};

// One weight of a launch, and what becomes of it.
struct Part {
	const unsigned char *w; // [n, k] in blocks, 16-byte aligned
	const float *bias;      // [n] or null
	float *y;               // [rows, n]
	int n, ways;            // ways: at most the warps of a block
};

// Two bf16 numbers for each of two, and of eight elements 4t … 4t+3 and 16+4t … of a row: the nearest, and
// that of what is left, in the order of blocks::Part.
static __device__ __forceinline__ void split(unsigned &high, unsigned &low, float a, float b) {
	high = pack_bf16(a, b);
	low = pack_bf16(a - __uint_as_float(high << 16), b - __uint_as_float(high & 0xffff0000u));
}
static __device__ __forceinline__ void split(unsigned (&high)[4], unsigned (&low)[4], const float4 &a, const float4 &b) {
	const float v[4][2] = {{a.x, a.z}, {a.y, a.w}, {b.x, b.z}, {b.y, b.w}};
#pragma unroll
	for (int i = 0; i < 4; i++) split(high[i], low[i], v[i][0], v[i][1]);
}

// Sums of rows x over a group of a block, −128 times: group g's, of rows 2t and 2t+1 of each eight.
template <int TILES> struct GroupSums {
	float of[TILES][2];
};

// Adds the products of 32 elements of rows x and of two tiles of 16 columns, whose places are in
// format, to acc, if they are there, and to nan of the columns what is none. The sums of x over a
// group with a low wait for add_lows, in the thread that keeps this group.
template <class F, int TILES>
static __device__ __forceinline__ void add_products(float (&acc)[2][TILES][4], GroupSums<TILES> &groups, unsigned (&nan)[4], const unsigned (&less)[4],
                                                    const F (&format)[4], int i, const float4 (&x)[TILES][2], bool there, bool keep) {
	const float zero[4] = {0, 0, 0, 0};
	unsigned high[TILES][4], low[TILES][4];
	float sums[TILES][4]; // of x, −128 times, for every column
#pragma unroll
	for (int r = 0; r < TILES; r++) {
		split(high[r], low[r], x[r][0], x[r][1]);
		if constexpr (F::LOW) {
			static_assert(F::ABOVE == 128, "sums are taken off");
			mma_bf16_16816(sums[r], less, {high[r][0], high[r][1]}, zero);
			mma_bf16_16816(sums[r], less, {high[r][2], high[r][3]}, sums[r]);
			mma_bf16_16816(sums[r], less, {low[r][0], low[r][1]}, sums[r]);
			mma_bf16_16816(sums[r], less, {low[r][2], low[r][3]}, sums[r]);
			if (F::GROUPS && keep) groups.of[r][0] = sums[r][0], groups.of[r][1] = sums[r][1];
		}
	}
#pragma unroll
	for (int tile = 0; tile < 2; tile++) {
		blocks::Part p[2]; // of columns g and g+8
		format[2 * tile].part(p[0], i), format[2 * tile + 1].part(p[1], i);
		if constexpr (F::NANS)
#pragma unroll
			for (int c = 0; c < 2; c++)
				if (there) nan[2 * tile + c] |= p[c].nan[0] | p[c].nan[1];
		const unsigned a[2][4] = {{p[0].q[0], p[1].q[0], p[0].q[1], p[1].q[1]}, {p[0].q[2], p[1].q[2], p[0].q[3], p[1].q[3]}};
#pragma unroll
		for (int r = 0; r < TILES; r++) {
			float(&y)[4] = acc[tile][r], sum[4];
#pragma unroll
			for (int h = 0; h < 2; h++) {
				if (F::HALVES || h == 0) memcpy(sum, F::LOW ? sums[r] : zero, sizeof sum);
				mma_bf16_16816(sum, a[h], {high[r][2 * h], high[r][2 * h + 1]}, sum);
				mma_bf16_16816(sum, a[h], {low[r][2 * h], low[r][2 * h + 1]}, sum);
				if (!F::HALVES && h == 0) continue;
#pragma unroll
				for (int e = 0; e < 4; e++)
					if (there) y[e] = fmaf(p[e / 2].scale[h], sum[e], y[e]);
			}
			if constexpr (F::LOW && !F::GROUPS)
#pragma unroll
				for (int e = 0; e < 4; e++)
					if (there) y[e] = fmaf(p[e / 2].low / 128, sums[r][e], y[e]);
		}
	}
}

// Takes the lows of a block's eight groups off: one product of their integers and of the groups' sums, as two of
// bf16 each.
template <class F, int TILES>
static __device__ __forceinline__ void add_lows(float (&acc)[2][TILES][4], const GroupSums<TILES> &groups, const F (&format)[4], int g, int t) {
	const float zero[4] = {0, 0, 0, 0};
	unsigned sums[TILES][2]; // of row g over groups 2t and 2t+1, which the threads have that keep them
#pragma unroll
	for (int r = 0; r < TILES; r++) {
		unsigned of[2];
		split(of[0], of[1], groups.of[r][0], groups.of[r][1]);
#pragma unroll
		for (int i = 0; i < 2; i++)
			sums[r][i] = __byte_perm(__shfl_sync(~0u, of[i], 8 * t + g / 2), __shfl_sync(~0u, of[i], 8 * t + 4 + g / 2), g % 2 ? 0x7632 : 0x5410);
	}
#pragma unroll
	for (int tile = 0; tile < 2; tile++) {
		const unsigned a = format[2 * tile].two_lows(t), b = format[2 * tile + 1].two_lows(t);
#pragma unroll
		for (int r = 0; r < TILES; r++) {
			float sum[4];
			mma_bf16_16816(sum, {a, b, a, b}, sums[r], zero);
#pragma unroll
			for (int e = 0; e < 4; e++) acc[tile][r][e] = fmaf(format[2 * tile + e / 2].factor() / 128, sum[e], acc[tile][r][e]);
		}
	}
}

// TILES · 8 rows at most. With up given, y = silu(x · wᵀ + bias) · (x · upᵀ + up_bias): half of
// the columns are its.
template <class F, int TILES>
static __device__ __forceinline__ void multiply(const Part &part, int block, const unsigned char *up, const float *up_bias, const float *x, int rows,
                                                int k, float alpha, float beta, int like) {
	typedef Chunk<F> C;
	constexpr int ROWS = TILE * TILES;
	DYNAMIC_SHARED(unsigned char, shared); // [warps][STAGES][COLUMNS][STRIDE]
	const int lane = threadIdx.x % 32, way = __shfl_sync(~0u, threadIdx.x / 32, 0), g = lane / 4, t = lane % 4;
	const int own = up ? COLUMNS / 2 : COLUMNS, first = block * own, chunks = (k + C::ELEMS - 1) / C::ELEMS;
	const size_t bytes = (size_t)k / F::ELEMS * F::BYTES;
	unsigned char *const ring = shared + way * STAGES * COLUMNS * C::STRIDE;
	// Of every eight columns a lane has one: it copies every fourth piece of the row, and
	// multiplies by a quarter of each 32 elements.
	const unsigned char *row[4]; // at its first piece of the next chunk
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const int column = min(first + (up ? j % 2 : j) * 8 + g, part.n - 1); // those past the end are not written
		row[j] = (up && j >= 2 ? up : part.w) + column * bytes + (size_t)way * C::BYTES + 16 * t;
	}
	// So many chunks of all columns have all their pieces before the end of the weight.
	const size_t reach = (part.n + 1 - min(first + own, part.n)) * bytes;
	const int whole = reach >= (size_t)chunks * C::BYTES + 16 * C::PIECES ? chunks : max(0, (int)reach - 16 * C::PIECES + C::BYTES) / C::BYTES;
	unsigned char *const to = ring + g * C::STRIDE;
	const unsigned char *next[4]; // the chunk that is copied
	auto stage = [&](int chunk, int slot) {
		constexpr int SLOT = COLUMNS * C::STRIDE, ALL = C::PIECES / 4 * 4;
		unsigned char *const copy = to + slot * SLOT + 16 * t;
		const unsigned char *from[4];
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const int phase = F::ALIGNED ? 0 : (int)((size_t)row[j] & 15);
			next[j] = to + slot * SLOT + 8 * j * C::STRIDE + phase;
			from[j] = row[j] - phase;
			row[j] += part.ways * C::BYTES;
		}
		if (chunk < whole) {
#pragma unroll
			for (int j = 0; j < 4; j++)
#pragma unroll
				for (int s = 0; s < ALL; s += 4) cp_async_16(copy + 8 * j * C::STRIDE + 16 * s, from[j] + 16 * s);
			if (t < C::PIECES - ALL)
#pragma unroll
				for (int j = 0; j < 4; j++) cp_async_16(copy + 8 * j * C::STRIDE + 16 * ALL, from[j] + 16 * ALL);
		} else {
#pragma unroll 1
			for (int s = 0; s + t < C::PIECES; s += 4)
#pragma unroll
				for (int j = 0; j < 4; j++) {
					const unsigned char *w = up && j >= 2 ? up : part.w;
					const ptrdiff_t left = w + part.n * bytes - (from[j] + 16 * s);
					cp_async_16(copy + 8 * j * C::STRIDE + 16 * s, left > 0 ? from[j] + 16 * s : w, left > 16 ? 16 : left > 0 ? (int)left : 0);
				}
		}
		cp_async_commit();
	};
	// Rows past the last are another's: no row of a product depends on others.
	const float *in[TILES]; // at the elements that are next
#pragma unroll
	for (int i = 0; i < TILES; i++) in[i] = x + (size_t)min(i * TILE + g, rows - 1) * k + way * C::ELEMS + 4 * t;
	float4 ahead[2][TILES][2]; // of the next 64
	auto load = [&](int i, int skip) {
#pragma unroll
		for (int r = 0; r < TILES; r++)
#pragma unroll
			for (int h = 0; h < 2; h++) ahead[i][r][h] = __ldg(reinterpret_cast<const float4 *>(in[r] + skip + 16 * h));
	};

	float acc[2][TILES][4]; // of 16 columns and eight rows
#pragma unroll
	for (int i = 0; i < 8 * TILES; i++) acc[i / (4 * TILES)][i / 4 % TILES][i % 4] = 0;
	unsigned nan[4] = {0, 0, 0, 0};
	GroupSums<TILES> groups;
	// −128 twice. Were they constants for the compiler, it would make them anew for each product; nothing here is negative.
	const bool never[4] = {TILES == 2 && k < 0, TILES == 2 && rows < 0, TILES == 2 && part.n < 0, TILES == 2 && part.ways < 0};
	const unsigned less[4] = {0xC300C300u + never[0], 0xC300C300u + never[1], 0xC300C300u + never[2], 0xC300C300u + never[3]};
	const int begin = way < part.ways ? way : chunks;
	int left = k - begin * C::ELEMS; // elements from where in is
	if (begin < chunks) {
		stage(begin, 0);
		load(0, 0);
		if (32 < left) load(1, 32);
	}
	for (int chunk = begin, slot = 0; chunk < chunks; chunk += part.ways, slot ^= 1) {
		cp_async_wait<0>();
		__syncwarp(); // the chunk is there, and the one before has been read
		F format[4];
#pragma unroll
		for (int j = 0; j < 4; j++) format[j].open(next[j], 0, t, like);
		if (chunk + part.ways < chunks) stage(chunk + part.ways, slot ^ 1);
#pragma unroll F::WORDS || F::HALVES && TILES == 2 ? 2 : 1
		for (int pair = 0; pair < C::ELEMS / 64; pair++) {
			const int step = pair < C::ELEMS / 64 - 1 ? 64 : 64 + (part.ways - 1) * C::ELEMS;
			const bool both = F::ELEMS == 256 || 32 < left;
			left -= step;
#pragma unroll
			for (int r = 0; r < TILES; r++) in[r] += step;
			add_products<F, TILES>(acc, groups, nan, less, format, 0, ahead[0], true, g == 2 * pair);
			if (0 < left) load(0, 0);
			add_products<F, TILES>(acc, groups, nan, less, format, 1, ahead[1], both, g == 2 * pair + 1);
			if (32 < left) load(1, 32);
			if (F::ELEMS != 256 && left <= 0) break; // a chunk is one block of the others
#pragma unroll
			for (int j = 0; j < 4; j++) format[j].advance(pair);
		}
		if constexpr (F::GROUPS) add_lows(acc, groups, format, g, t);
	}
	if constexpr (F::NANS)
#pragma unroll
		for (int j = 0; j < 4; j++) {
			nan[j] |= __shfl_xor_sync(~0u, nan[j], 1);
			nan[j] |= __shfl_xor_sync(~0u, nan[j], 2);
			if (nan[j] & 0x80808080)
#pragma unroll
				for (int r = 0; r < 2 * TILES; r++) acc[j / 2][r / 2][2 * (j % 2) + r % 2] = __uint_as_float(0x7fc00000);
		}
	// A warp's sums [COLUMNS, ROWS] take the place of its chunks.
	float *partial = reinterpret_cast<float *>(ring);
	__syncwarp();
#pragma unroll
	for (int i = 0; i < 8 * TILES; i++) {
		const int tile = i / (4 * TILES), r = i / 4 % TILES, e = i % 4;
		partial[(16 * tile + 8 * (e / 2) + g) * ROWS + r * TILE + 2 * t + e % 2] = acc[tile][r][e];
	}
	__syncthreads(); // the sums of all ways are there
	for (int i = threadIdx.x; i < own * ROWS; i += blockDim.x) {
		const int r = i % ROWS, column = first + i / ROWS;
		if (r >= rows || column >= part.n) continue;
		float sum = 0, up_sum = 0;
		for (int w = 0; w < part.ways; w++) {
			const float *of = reinterpret_cast<const float *>(shared + w * STAGES * COLUMNS * C::STRIDE);
			sum += of[i];
			if (up) up_sum += of[i + own * ROWS];
		}
		float &to = part.y[(size_t)r * part.n + column], v = alpha * sum;
		if (beta != 0) v += beta * to;
		if (part.bias) v += part.bias[column];
		if (up) {
			if (up_bias) up_sum += up_bias[column];
			v = v * sigmoid(v) * up_sum;
		}
		to = v;
	}
}

// The blocks of up to three weights follow each other; those that are not there have no
// columns.
static __device__ __forceinline__ void choose(Part &part, int &block, const Part &next) {
	const int blocks = (part.n + COLUMNS - 1) / COLUMNS;
	if (next.n == 0 || block < blocks) return;
	block -= blocks;
	part = next;
}

} // namespace few_blocks

// gated: w1 is what w0 gates. like: what the format differs in (blocks.h).
#define FEW_BLOCKS(name, F, TILES)                                                                                                      \
	extern "C" __global__ void __launch_bounds__(256, 2 / TILES)                                                                      \
	name(const unsigned char *w0, const float *bias0, float *y0, int n0, int ways0, const unsigned char *w1, const float *bias1,        \
	     float *y1, int n1, int ways1, const unsigned char *w2, const float *bias2, float *y2, int n2, int ways2, const float *x,       \
	     int rows, int k, float alpha, float beta, int gated, int like) {                                                               \
		few_blocks::Part part = {w0, bias0, y0, n0, ways0};                                                                             \
		int block = blockIdx.x;                                                                                                         \
		if (!gated) {                                                                                                                   \
			few_blocks::choose(part, block, {w1, bias1, y1, n1, ways1});                                                                \
			if (part.w == w1) few_blocks::choose(part, block, {w2, bias2, y2, n2, ways2});                                              \
		}                                                                                                                               \
		few_blocks::multiply<blocks::F, TILES>(part, block, gated ? w1 : nullptr, gated ? bias1 : nullptr, x, rows, k, alpha, beta,     \
		                                     like);                                                                                     \
	}                                                                                                                                   \
	HOST_KERNEL(name)

FEW_BLOCKS(few_blocks_e4m3_bf16_8, E4M3_BF16, 1)
FEW_BLOCKS(few_blocks_e4m3_bf16_16, E4M3_BF16, 2)
FEW_BLOCKS(few_blocks_e4m3_f32_8, E4M3_F32, 1)
FEW_BLOCKS(few_blocks_e4m3_f32_16, E4M3_F32, 2)
FEW_BLOCKS(few_blocks_e2m1_e8m0_8, E2M1_E8M0<true>, 1)
FEW_BLOCKS(few_blocks_e2m1_e8m0_16, E2M1_E8M0<true>, 2)
FEW_BLOCKS(few_blocks_i4_8, I4<true>, 1)
FEW_BLOCKS(few_blocks_i4_16, I4<true>, 2)
FEW_BLOCKS(few_blocks_q4_0_8, Q4_0, 1)
FEW_BLOCKS(few_blocks_q4_0_16, Q4_0, 2)
FEW_BLOCKS(few_blocks_q4_1_8, Q4_1, 1)
FEW_BLOCKS(few_blocks_q4_1_16, Q4_1, 2)
FEW_BLOCKS(few_blocks_q4_k_8, Q4_K, 1)
FEW_BLOCKS(few_blocks_q4_k_16, Q4_K, 2)
FEW_BLOCKS(few_blocks_q5_0_8, Q5_0, 1)
FEW_BLOCKS(few_blocks_q5_0_16, Q5_0, 2)
FEW_BLOCKS(few_blocks_q5_1_8, Q5_1, 1)
FEW_BLOCKS(few_blocks_q5_1_16, Q5_1, 2)
FEW_BLOCKS(few_blocks_q5_k_8, Q5_K, 1)
FEW_BLOCKS(few_blocks_q5_k_16, Q5_K, 2)
FEW_BLOCKS(few_blocks_q6_k_8, Q6_K, 1)
FEW_BLOCKS(few_blocks_q6_k_16, Q6_K, 2)
FEW_BLOCKS(few_blocks_q8_0_8, Q8_0, 1)
FEW_BLOCKS(few_blocks_q8_0_16, Q8_0, 2)
