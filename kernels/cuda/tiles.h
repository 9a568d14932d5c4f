// Tiles of bf16 rows in shared memory, for kernels on tensor cores.
#pragma once
#include "attention.h"

// Starts the copy of count rows of dim elements into a tile of `rows` rows of DIM + 8, so
// that rows of a fragment fall in distinct banks; what lies outside becomes zero. from(r)
// is the address of row r, any one that may be read.
template <int DIM, class From>
static __device__ __forceinline__ void load_rows(__nv_bfloat16 *tile, int rows, int count, int dim, const __nv_bfloat16 *any, From from) {
#pragma unroll 1 // addresses of several copies at once would take many registers
	for (int i = threadIdx.x; i < rows * (DIM / 8); i += blockDim.x) {
		int r = i / (DIM / 8), d = i % (DIM / 8) * 8;
		bool inside = r < count && d < dim; // dim is a multiple of 8
		cp_async_16(tile + r * (DIM + 8) + d, inside ? from(r) + d : any, inside ? 16 : 0);
	}
}
