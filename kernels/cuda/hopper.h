// What the kernels for Hopper (sm_90a) use beside prims.h: barriers in shared memory,
// bulk copies of tiles, and matrix products of a warpgroup (four warps). With nvcc each
// is one PTX instruction; with g++ host/hopper_host.h does what PTX ISA says it does,
// as late as it allows.
#pragma once
#include "prims.h"

// CUtensorMap: what the driver encodes for the copy engine.
struct __align__(64) TensorMap {
	unsigned char opaque[128];
};

#ifndef __CUDACC__
#include "host/hopper_host.h"
#else

static __device__ __forceinline__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// A barrier completes a phase when as many arrivals as its count and as many bytes as
// were announced have come in.
static __device__ __forceinline__ void mbarrier_init(unsigned long long *b, unsigned count) {
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
// By the thread that initialised, before the block's barrier.
static __device__ __forceinline__ void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
static __device__ __forceinline__ void mbarrier_arrive(unsigned long long *b) {
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// Arrives and announces bytes of bulk copies.
static __device__ __forceinline__ void mbarrier_arrive_expect(unsigned long long *b, unsigned bytes) {
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
// Waits for the phase of the given parity to be complete; the one before the first
// counts as complete.
static __device__ __forceinline__ void mbarrier_wait(unsigned long long *b, unsigned parity) {
	unsigned done;
	do {
		asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
		             : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
	} while (!done);
}

// Before the first copy by a tensor map in global memory that the host wrote.
static __device__ __forceinline__ void tensor_map_acquire(const TensorMap *map) {
	asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}
// Copies the map's box at element (column, row) to shared memory; its bytes count for b.
static __device__ __forceinline__ void bulk_load(void *dst, const TensorMap *map, int column, int row, unsigned long long *b) {
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
	             ::"r"(shared_address(dst)), "l"(map), "r"(shared_address(b)), "r"(column), "r"(row) : "memory");
}

// Stores what bulk copies or products of this block read; they see it after every
// storing thread has fenced and a barrier has followed.
static __device__ __forceinline__ void shared_store_16(void *dst, uint4 v) { *reinterpret_cast<uint4 *>(dst) = v; }
static __device__ __forceinline__ void shared_store_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Moves registers between the warpgroups of a block.
template <int N> static __device__ __forceinline__ void release_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> static __device__ __forceinline__ void claim_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// Before the first product, and after ordinary code touched registers that products use.
static __device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most N committed groups are still running.
template <int N> static __device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// Keeps the compiler from moving accesses of an accumulator over a fence or wait.
template <int N> static __device__ __forceinline__ void wgmma_pin(float (&d)[N]) {
#pragma unroll
	for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define ACC4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define ACC16(i) ACC4(i), ACC4((i) + 4), ACC4((i) + 8), ACC4((i) + 12)
#define ACC32(i) ACC16(i), ACC16((i) + 16)
#define ACC64(i) ACC32(i), ACC32((i) + 32)
#define ACC128(i) ACC64(i), ACC64((i) + 64)
#define REGISTERS_32 \
	"{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define REGISTERS_64 \
	"{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define REGISTERS_128 \
	"{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
	"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
	"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
	"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
	"%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"

// d [64, 2·registers] = a · bᵀ (+ d): a [64, 16] and b [2·registers, 16] in shared memory, rows
// along k. The thread's accumulators are laid out as those of mma_bf16_16816, for the
// warp's 16 rows and every 8 columns.
static __device__ __forceinline__ void wgmma_shared(float (&d)[32], unsigned long long a, unsigned long long b, bool accumulate) {
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " REGISTERS_32
	             ", %32, %33, p, 1, 1, 0, 0;\n}\n" : ACC32(0) : "l"(a), "l"(b), "r"((int)accumulate));
}
static __device__ __forceinline__ void wgmma_shared(float (&d)[64], unsigned long long a, unsigned long long b, bool accumulate) {
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGISTERS_64
	             ", %64, %65, p, 1, 1, 0, 0;\n}\n" : ACC64(0) : "l"(a), "l"(b), "r"((int)accumulate));
}

// d [64, 2·registers] += a · b: a [64, 16] in registers, laid out as those of mma_bf16_16816 for
// the warp's 16 rows; b [16, 2·registers] in shared memory, rows along n.
static __device__ __forceinline__ void wgmma_registers(float (&d)[32], const unsigned *a, unsigned long long b) {
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " REGISTERS_32
	             ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n" : ACC32(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
static __device__ __forceinline__ void wgmma_registers(float (&d)[64], const unsigned *a, unsigned long long b) {
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGISTERS_64
	             ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n" : ACC64(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
static __device__ __forceinline__ void wgmma_registers(float (&d)[128], const unsigned *a, unsigned long long b) {
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 " REGISTERS_128
	             ", {%128, %129, %130, %131}, %132, p, 1, 1, 1;\n}\n" : ACC128(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif

// A matrix in shared memory in rows of 128 bytes, of which the 16-byte chunk c of row r
// lies at chunk c ^ (r % 8): the layout that the copy engine writes and products read with
// 128-byte swizzle. Its start is aligned to 1024 bytes; eight rows follow the eight
// before. panel is the distance in bytes from 64 columns of a matrix with rows along n to
// the next 64.
static __device__ __forceinline__ unsigned long long wgmma_matrix(const void *start, int panel) {
	unsigned long long d = (shared_address(start) & 0x3FFFF) >> 4;
	d |= (unsigned long long)(panel >> 4) << 16;
	d |= (unsigned long long)(1024 >> 4) << 32;
	return d | 1ull << 62; // 128-byte swizzle
}
