// Primitives that the kernels use instead of writing inline PTX themselves.
// With nvcc they are one PTX instruction each; with g++ the same names come
// from host/cuda_host.h, which moves exactly the same data between lanes.
#pragma once

#ifndef __CUDACC__
#include "host/cuda_host.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Dynamic shared memory: one buffer per block, sized by the launch.
#define DYNAMIC_SHARED(type, name)                                            \
	extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];     \
	type *name = reinterpret_cast<type *>(dynamic_shared_bytes)

// Registers a kernel with the host driver; nothing to do for a real driver.
#define HOST_KERNEL(name)

// Copies 16 bytes global -> shared asynchronously. Only the first src_bytes are
// read, the rest of dst becomes zero (tails). Both addresses 16-byte aligned.
__device__ __forceinline__ void cp_async_16(void *dst, const void *src, int src_bytes = 16) {
	unsigned d = (unsigned)__cvta_generic_to_shared(dst);
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(d),
	             "l"(__cvta_generic_to_global(src)), "r"(src_bytes) : "memory");
}
// The same of one 4-byte number, or none.
__device__ __forceinline__ void cp_async_4(void *dst, const void *src, int src_bytes = 4) {
	unsigned d = (unsigned)__cvta_generic_to_shared(dst);
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(d),
	             "l"(__cvta_generic_to_global(src)), "r"(src_bytes) : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
	asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits until at most N of this thread's committed groups are still in flight.
template <int N> __device__ __forceinline__ void cp_async_wait() {
	asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

// Loads four 8x8 b16 matrices; lanes 8i..8i+7 give the row addresses of matrix i.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void *row) {
	unsigned s = (unsigned)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
	             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(s) : "memory");
}

// The same with every 8x8 matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], const void *row) {
	unsigned s = (unsigned)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
	             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(s) : "memory");
}

// d[16x8] = a[16x16] * b[16x8] + c[16x8]; bf16 inputs, f32 accumulation.
__device__ __forceinline__ void mma_bf16_16816(float (&d)[4], const unsigned (&a)[4],
                                               const unsigned (&b)[2], const float (&c)[4]) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
	             "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};\n"
	             : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
	               "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// Kernels that were launched to begin early (kernels/cuda/early.go) may begin once all blocks of this
// one have come here: there is room for them then.
__device__ __forceinline__ void grid_release() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}
// Before it a kernel that began early reads nothing that a kernel writes, and writes nothing; every
// block comes here. After it, what kernels before have written is there.
__device__ __forceinline__ void grid_wait() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// exp2f without results below 2^-126, which become zero.
__device__ __forceinline__ float exp2_fast(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// (a & mask) | bits in one instruction: of two constants nvcc makes two.
__device__ __forceinline__ unsigned and_or(unsigned a, unsigned mask, unsigned bits) {
	unsigned d;
	asm("lop3.b32 %0, %1, %2, %3, 0xEA;\n" : "=r"(d) : "r"(a), "r"(mask), "r"(bits));
	return d;
}

// The sums of two pairs of bf16.
__device__ __forceinline__ unsigned add_bf16x2(unsigned a, unsigned b) {
	unsigned d;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(0x3f803f80u), "r"(b));
	return d;
}

// The products of two pairs of bf16, subnormal ones too.
__device__ __forceinline__ unsigned multiply_bf16x2(unsigned a, unsigned b) {
	unsigned d;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000u));
	return d;
}

#endif

static __device__ __forceinline__ float to_float(float v) { return v; }
static __device__ __forceinline__ float to_float(double v) { return (float)v; }
static __device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
static __device__ __forceinline__ float to_float(__half v) { return __half2float(v); }

static __device__ __forceinline__ void put(float *y, float v) { *y = v; }
static __device__ __forceinline__ void put(__nv_bfloat16 *y, float v) { *y = __float2bfloat16(v); }

// Two floats as a pair of bf16, the first one in the low half.
static __device__ __forceinline__ unsigned pack_bf16(float low, float high) {
	__nv_bfloat16 pair[2] = {__float2bfloat16(low), __float2bfloat16(high)};
	unsigned u;
	memcpy(&u, pair, 4);
	return u;
}

static __device__ __forceinline__ size_t thread_index() { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }

// What a reduction over lanes does with two values.
struct Add {
	template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
};
struct Max {
	static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
};

// The host driver does a reduction over the lanes of a warp at once (cuda_host.h), except where
// it is to run these.
#ifndef HC_REDUCTIONS

// Reduces v over the lanes whose numbers differ in the bits from, from/2, … to, in this order.
// Each of them gets the result.
template <class Op, class T> static __device__ __forceinline__ T butterfly(T v, int from, int to) {
#pragma unroll
	for (int d = from; d >= to; d /= 2) v = Op::of(v, __shfl_xor_sync(~0u, v, d));
	return v;
}

// Sums each of N numbers, a power of two, over LANES neighbouring lanes. Of the sums the lane
// keeps max(1, N/LANES) at the front of v, from lane%LANES · N/LANES on; with more lanes than
// numbers, neighbours keep the same one. Every sum is the same tree of lanes, whatever N is.
template <int N, int LANES> static __device__ __forceinline__ void scatter_sums(float *v) {
	if constexpr (LANES > 1 && N > 1) {
		const bool upper = threadIdx.x & (LANES / 2);
#pragma unroll
		for (int i = 0; i < N / 2; i++) {
			float keep = upper ? v[i + N / 2] : v[i], give = upper ? v[i] : v[i + N / 2];
			v[i] = keep + __shfl_xor_sync(~0u, give, LANES / 2);
		}
		scatter_sums<N / 2, LANES / 2>(v);
	} else {
		v[0] = butterfly<Add>(v[0], LANES / 2, 1);
	}
}

#endif

static __device__ __forceinline__ float warp_max(float v) { return butterfly<Max>(v, 16, 1); }
template <class T> static __device__ __forceinline__ T warp_sum(T v) { return butterfly<Add>(v, 16, 1); }

// The sum over a block of whole warps, known to all its threads. The caller gives
// the shared memory; it may be used again right after.
template <class T> static __device__ __forceinline__ T block_sum(T v, T (&partial)[32]) {
	int lane = threadIdx.x % 32, warps = blockDim.x / 32;
	v = warp_sum(v);
	if (lane == 0) partial[threadIdx.x / 32] = v;
	__syncthreads();
	v = warp_sum(lane < warps ? partial[lane] : T(0));
	__syncthreads();
	return v;
}
static __device__ __forceinline__ float block_max(float v, float (&partial)[32]) {
	int lane = threadIdx.x % 32, warps = blockDim.x / 32;
	v = warp_max(v);
	if (lane == 0) partial[threadIdx.x / 32] = v;
	__syncthreads();
	v = warp_max(lane < warps ? partial[lane] : -INFINITY);
	__syncthreads();
	return v;
}
