// Blocks of quantised weights as numbers: to bf16, which products of many rows multiply by, and
// rows of a table to float32. The numbers before they are rounded are those of kernels/formats,
// bit by bit.
#include "blocks.h"

static __device__ __forceinline__ void put4(float *y, const float (&v)[4]) {
	for (int i = 0; i < 4; i++) y[i] = v[i];
}
static __device__ __forceinline__ void put4(__nv_bfloat16 *y, const float (&v)[4]) { // y is aligned to 8 bytes
	*reinterpret_cast<uint2 *>(y) = uint2{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
}

// A thread has eight elements; y [rows, width] is rows ids of the table, or where ids is null
// all that are there. What lies at place j of a row is column columns[j], or j where that is null.
template <class F, class Y>
static __device__ __forceinline__ void widen(Y *y, const unsigned char *table, const int *ids, const int *columns, size_t n, size_t width, int like) {
	const size_t i = thread_index(), at = i / 4 * 32, row = at / width, column = at % width;
	if (8 * i >= n) return;
	const int t = i % 4;
	const unsigned char *block = table + ((ids ? ids[row] : row) * width + column) / F::ELEMS * F::BYTES;
	F format;
	blocks::Part part;
	const int group = (int)(column % F::ELEMS) / 32;
	format.open(block, group / 2, t, like);
	format.part(part, group % 2);
#pragma unroll
	for (int h = 0; h < 2; h++) {
		float v[4];
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const unsigned pair = part.q[2 * h + e % 2];
			v[e] = __fsub_rn(__fmul_rn(part.scale[h], __uint_as_float(e < 2 ? pair << 16 : pair & 0xffff0000u) - F::ABOVE), part.low);
			if (like & blocks::ROUNDED) v[e] = __half2float(__float2half_rn(v[e]));
			if (like & blocks::UNSIGNED_ZEROS) v[e] += 0;
			if (F::NANS && part.nan[h] >> 8 * e & 128) v[e] = __uint_as_float(0x7fc00000);
		}
		const size_t first = column + 16 * h + 4 * t;
		if (columns)
			for (int e = 0; e < 4; e++) put(y + row * width + columns[first + e], v[e]);
		else put4(y + row * width + first, v);
	}
}

#define BLOCKS(name, F)                                                                                                               \
	extern "C" __global__ void widen_##name(__nv_bfloat16 *y, const unsigned char *blocks, const int *columns, size_t n,              \
	                                        size_t width, int like) {                                                                 \
		widen<blocks::F>(y, blocks, nullptr, columns, n, width, like);                                                                \
	}                                                                                                                                 \
	extern "C" __global__ void gather_##name(float *y, const unsigned char *table, const int *ids, const int *columns, size_t n,      \
	                                         size_t width, int like) {                                                                \
		widen<blocks::F>(y, table, ids, columns, n, width, like);                                                                     \
	}                                                                                                                                 \
	HOST_KERNEL(widen_##name)                                                                                                         \
	HOST_KERNEL(gather_##name)

BLOCKS(e4m3_bf16, E4M3_BF16)
BLOCKS(e4m3_f32, E4M3_F32)
BLOCKS(e2m1_e8m0, E2M1_E8M0<false>)
BLOCKS(i4, I4<false>)
BLOCKS(q4_0, Q4_0)
BLOCKS(q4_1, Q4_1)
BLOCKS(q4_k, Q4_K)
BLOCKS(q5_0, Q5_0)
BLOCKS(q5_1, Q5_1)
BLOCKS(q5_k, Q5_K)
BLOCKS(q6_k, Q6_K)
BLOCKS(q8_0, Q8_0)

// y [rows, width] has in every row what x has at columns[j], at place j.
extern "C" __global__ void in_order(float *y, const float *x, const int *columns, size_t n, size_t width) {
	const size_t i = thread_index();
	if (i >= n) return;
	y[i] = x[i / width * width + columns[i % width]];
}
HOST_KERNEL(in_order)
