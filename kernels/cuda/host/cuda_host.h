// The CUDA C++ subset that the kernels use, for g++: included instead of the
// CUDA headers, so that the same .cu files run on the CPU. Every thread of a
// block is a fiber (block.cpp); barriers and warp-wide operations switch to the
// other fibers until all participants have arrived.
#pragma once
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// The library has no other thread-local data, so its TLS block is exactly the
// static shared memory; block.cpp finds it there and poisons it for each block.
#define __shared__ static thread_local
#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(hc::dynamic_shared())

struct uint3 { unsigned x, y, z; };
typedef uint3 dim3;
struct __align__(8) float2 { float x, y; };
struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
// Ordinary globals: the scheduler sets them before it resumes a fiber.
extern uint3 threadIdx, blockIdx;
extern unsigned hc_lane; // of the thread in its warp
extern dim3 blockDim, gridDim;

// A rehearsal of a chip has functions as far off as CUDA's may be (the bounds of its
// documentation, in units of the last place), by an error that the argument alone decides.
#ifdef HC_CHIP
namespace hc {
inline float off(float y, float x, int ulps) {
	unsigned u, v;
	memcpy(&u, &y, 4), memcpy(&v, &x, 4);
	if ((u & 0x7f800000) == 0x7f800000 || (u & 0x7fffffff) < 0x01000000 || y == 1) return y;
	u += (int)((v * 2654435761u >> 16) % (2 * ulps + 1)) - ulps;
	memcpy(&y, &u, 4);
	return y;
}
inline double off(double y, double x) {
	unsigned long long u, v;
	memcpy(&u, &y, 8), memcpy(&v, &x, 8);
	if (y != y || y == 0 || y == 1 || isinf(y)) return y;
	u += (int)((v * 0x9E3779B97F4A7C15ull >> 40) % 3) - 1;
	memcpy(&y, &u, 8);
	return y;
}
inline float chip_expf(float x) { return off(::expf(x), x, 1); }
inline float chip_exp2f(float x) { return off(::exp2f(x), x, 2); }
inline float chip_logf(float x) { return off(::logf(x), x, 1); }
inline float chip_erfcf(float x) { return off(::erfcf(x), x, 4); }
inline double chip_exp(double x) { return off(::exp(x), x); }
inline double chip_log(double x) { return off(::log(x), x); }
} // namespace hc
#ifdef HC_KERNEL
#define exp(x) hc::chip_exp(x)
#define log(x) hc::chip_log(x)
#define expf hc::chip_expf
#define exp2f hc::chip_exp2f
#define logf hc::chip_logf
#define erfcf hc::chip_erfcf
#endif
#endif

namespace hc {

// Source position of a collective, taken at the call (a default argument).
struct Site {
	const char *file;
	int line;
};
#define HC_SITE hc::Site at = {__builtin_FILE(), __builtin_LINE()}

void *dynamic_shared();
void block_barrier(Site at);
// Blocks until every lane of mask has called it from the same site; the last
// one runs op with all lanes' arg pointers (null for lanes outside the mask).
void warp_collective(unsigned mask, const char *name, Site at, void *arg, void (*op)(void **args));
void whole_warp_collective(const char *name, Site at, void *arg, void (*op)(void **args));
// Asynchronous copies: the data is read now and appears in dst at the wait.
void cp_async(void *dst, const void *src, int size, int src_bytes, Site at);
void cp_async_commit();
void cp_async_wait(int in_flight);
void grid_wait();
void ldmatrix_x4(unsigned *r, const void *row, Site at);
void ldmatrix_x4_trans(unsigned *r, const void *row, Site at);
void mma_bf16_16816(float *d, const unsigned *a, const unsigned *b, const float *c, Site at);

template <class T> T shuffle(unsigned mask, T v, int from, const char *name, Site at) {
	struct Arg { T in, out; int from; } arg = {v, v, from};
	warp_collective(mask, name, at, &arg, [](void **args) {
		for (int i = 0; i < 32; i++) {
			if (!args[i]) continue;
			Arg *a = static_cast<Arg *>(args[i]), *src = static_cast<Arg *>(args[a->from]);
			if (src) a->out = src->in;
			else memset(&a->out, 0xFF, sizeof(T)); // lane outside the mask: undefined
		}
	});
	return arg.out;
}

inline unsigned ballot(unsigned mask, bool pred, const char *name, Site at) {
	struct Arg { bool pred; unsigned bits; } arg = {pred, 0};
	warp_collective(mask, name, at, &arg, [](void **args) {
		unsigned bits = 0;
		for (int i = 0; i < 32; i++)
			if (args[i] && static_cast<Arg *>(args[i])->pred) bits |= 1u << i;
		for (int i = 0; i < 32; i++)
			if (args[i]) static_cast<Arg *>(args[i])->bits = bits;
	});
	return arg.bits;
}

// The reductions of prims.h over whole warps, each as one collective: the same sums as of its
// shuffles, which the rehearsal of a chip runs, and the kernels with a planted bug.
#if !defined(HC_CHIP) && !defined(HC_SHUFFLES)
#define HC_REDUCTIONS

template <class Op, class T> T butterfly(T v, int from, int to, Site at) {
	if (from < to) return v;
	struct Arg { T v; int from, to; } arg = {v, from, to};
	whole_warp_collective("butterfly", at, &arg, [](void **args) {
		T all[32], next[32];
		for (int i = 0; i < 32; i++) all[i] = static_cast<Arg *>(args[i])->v;
		for (int d = static_cast<Arg *>(args[0])->from, to = static_cast<Arg *>(args[0])->to; d >= to; d /= 2) {
			for (int i = 0; i < 32; i++) next[i] = Op::of(all[i], all[i ^ d]);
			memcpy(all, next, sizeof all);
		}
		for (int i = 0; i < 32; i++) static_cast<Arg *>(args[i])->v = all[i];
	});
	return arg.v;
}

template <int N, int LANES> void scatter_sums(float *v, Site at) {
	whole_warp_collective("scatter_sums", at, v, [](void **args) {
		int n = N;
		for (int half = LANES / 2; half > 0; half /= 2) {
			n /= 2;
			for (int l = 0; l < 32; l++) {
				if (l & half) continue;
				float *lower = static_cast<float *>(args[l]), *upper = static_cast<float *>(args[l | half]);
				if (n == 0) lower[0] = upper[0] = lower[0] + upper[0];
				for (int i = 0; i < n; i++) {
					lower[i] += upper[i];
					upper[i] = upper[i + n] + lower[i + n];
				}
			}
		}
	});
}
#endif

// ---- kernel registry: launch by name with the driver API's void** parameters

struct Param {
	size_t size;
	bool pointer; // must be a device address; checked at launch
	bool written; // the kernel may write there
};
struct Kernel {
	const char *name;
	void (*call)(void **params);
	const Param *params;
	int count;
	const char *file; // whose static shared memory it has
	Kernel *next;
};
extern Kernel *kernels;

template <auto F> struct Unpack;
template <class... P, void (*F)(P...)> struct Unpack<F> {
	static constexpr Param params[] = {{sizeof(P), std::is_pointer_v<P>, std::is_pointer_v<P> && !std::is_const_v<std::remove_pointer_t<P>>}..., {0, false, false}};
	template <size_t... I> static void apply(void **p, std::index_sequence<I...>) {
		F(*static_cast<std::remove_cv_t<P> *>(p[I])...);
	}
	static void call(void **p) { apply(p, std::index_sequence_for<P...>{}); }
	Kernel k;
	Unpack(const char *name, const char *file) : k{name, call, params, sizeof...(P), file, kernels} { kernels = &k; }
};
#define HOST_KERNEL(name) static hc::Unpack<name> hc_kernel_##name(#name, __FILE__);

} // namespace hc

inline float exp2_fast(float x) {
	float y = exp2f(x);
	return fabsf(y) < 1.17549435e-38f ? 0 : y; // ex2.approx.ftz
}
// Byte i of the result is the one of b:a that four bits of s name.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
	unsigned d = 0;
	for (int i = 0; i < 4; i++) {
		const unsigned from = s >> 4 * i & 7;
		d |= ((from < 4 ? a : b) >> from % 4 * 8 & 255) << 8 * i;
	}
	return d;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
	return (unsigned)(((unsigned long long)high << 32 | low) >> shift % 32);
}
inline float __uint_as_float(unsigned u) {
	float f;
	memcpy(&f, &u, 4);
	return f;
}
inline unsigned __float_as_uint(float f) {
	unsigned u;
	memcpy(&u, &f, 4);
	return u;
}

// ---- barriers, shuffles, votes

inline void __syncthreads(HC_SITE) { hc::block_barrier(at); }
inline void __syncwarp(unsigned mask = ~0u, HC_SITE) {
	hc::warp_collective(mask, "__syncwarp", at, &mask, [](void **) {});
}
template <class T> T __shfl_sync(unsigned mask, T v, int src, int width = 32, HC_SITE) {
	int base = (int)hc_lane & ~(width - 1);
	return hc::shuffle(mask, v, base + (src & (width - 1)), "__shfl_sync", at);
}
// Sources outside the lane's segment return the lane's own value.
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, HC_SITE) {
	int l = (int)hc_lane, from = l - (int)delta;
	return hc::shuffle(mask, v, from < (l & ~(width - 1)) ? l : from, "__shfl_up_sync", at);
}
template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, HC_SITE) {
	int l = (int)hc_lane, from = l + (int)delta;
	return hc::shuffle(mask, v, from > (l | (width - 1)) ? l : from, "__shfl_down_sync", at);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, HC_SITE) {
	int l = (int)hc_lane, from = l ^ bits;
	return hc::shuffle(mask, v, from > (l | (width - 1)) ? l : from, "__shfl_xor_sync", at);
}
inline unsigned __ballot_sync(unsigned mask, int pred, HC_SITE) {
	return hc::ballot(mask, pred, "__ballot_sync", at);
}
inline int __any_sync(unsigned mask, int pred, HC_SITE) {
	return hc::ballot(mask, pred, "__any_sync", at) != 0;
}
inline int __all_sync(unsigned mask, int pred, HC_SITE) {
	return hc::ballot(mask, !pred, "__all_sync", at) == 0;
}

// ---- atomics: fibers switch only inside collectives, so plain code is atomic

template <class T> T atomicAdd(T *p, T v) { T old = *p; *p = old + v; return old; }
template <class T> T atomicMax(T *p, T v) { T old = *p; if (v > old) *p = v; return old; }

// ---- arithmetic

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
// Never part of a fused operation, which the compiler makes where it may.
inline double __dmul_rn(double a, double b) { volatile double p = a * b; return p; }
inline double __dadd_rn(double a, double b) { volatile double s = a + b; return s; }
inline float __fmul_rn(float a, float b) { volatile float p = a * b; return p; }
inline float __fsub_rn(float a, float b) { volatile float s = a - b; return s; }
inline float __expf(float x) { return expf(x); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }

struct __nv_bfloat16 { unsigned short bits; };
inline float __bfloat162float(__nv_bfloat16 v) {
	unsigned u = (unsigned)v.bits << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
inline __nv_bfloat16 __float2bfloat16(float f) { // round to nearest even
	unsigned u;
	memcpy(&u, &f, 4);
	if (f != f) return {0x7FFF};
	return {(unsigned short)((u + 0x7FFF + (u >> 16 & 1)) >> 16)};
}

struct __half { unsigned short bits; };
inline float __half2float(__half v) {
	unsigned sign = (unsigned)(v.bits >> 15) << 31, exponent = v.bits >> 10 & 31, fraction = v.bits & 0x3ff, u;
	if (exponent == 0) {
		float f = (float)fraction * (1.0f / (1 << 24));
		memcpy(&u, &f, 4);
	} else if (exponent == 31) {
		u = 0x7f800000 | fraction << 13;
	} else {
		u = (exponent + 112) << 23 | fraction << 13;
	}
	u |= sign;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
inline __half __float2half_rn(float f) { // ties to even
	unsigned u;
	memcpy(&u, &f, 4);
	const unsigned sign = u >> 16 & 0x8000;
	u &= 0x7fffffff;
	if (u > 0x7f800000) return {0x7fff};
	if (u >= 0x477ff000) return {(unsigned short)(sign | 0x7c00)}; // half of the last place above the largest
	if (u < 0x38800000) { // subnormal: multiples of 2⁻²⁴, as adding 2⁻¹ rounds them
		float magnitude;
		memcpy(&magnitude, &u, 4);
		magnitude += 0.5f;
		memcpy(&u, &magnitude, 4);
		return {(unsigned short)(sign | (u - 0x3f000000))};
	}
	return {(unsigned short)(sign | (((u + 0xfff + (u >> 13 & 1)) >> 13) - (112 << 10)))};
}

// ---- the primitives of prims.h

#ifdef HC_REDUCTIONS
template <class Op, class T> T butterfly(T v, int from, int to, HC_SITE) { return hc::butterfly<Op>(v, from, to, at); }
template <int N, int LANES> void scatter_sums(float *v, HC_SITE) { hc::scatter_sums<N, LANES>(v, at); }
#endif
inline void cp_async_16(void *dst, const void *src, int src_bytes = 16, HC_SITE) {
	hc::cp_async(dst, src, 16, src_bytes, at);
}
inline void cp_async_4(void *dst, const void *src, int src_bytes = 4, HC_SITE) { hc::cp_async(dst, src, 4, src_bytes, at); }
inline void grid_release() {}
inline void grid_wait() { hc::grid_wait(); }
inline void cp_async_commit() { hc::cp_async_commit(); }
template <int N> void cp_async_wait() { hc::cp_async_wait(N); }
inline void ldmatrix_x4(unsigned (&r)[4], const void *row, HC_SITE) { hc::ldmatrix_x4(r, row, at); }
inline void ldmatrix_x4_trans(unsigned (&r)[4], const void *row, HC_SITE) { hc::ldmatrix_x4_trans(r, row, at); }
inline void mma_bf16_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                           const float (&c)[4], HC_SITE) {
	hc::mma_bf16_16816(d, a, b, c, at);
}
inline unsigned and_or(unsigned a, unsigned mask, unsigned bits) { return (a & mask) | bits; }
template <class F> unsigned each_bf16x2(unsigned a, unsigned b, F of) {
	unsigned d = 0;
	for (int shift = 0; shift < 32; shift += 16) {
		float x = __bfloat162float({(unsigned short)(a >> shift)}), y = __bfloat162float({(unsigned short)(b >> shift)});
		d |= (unsigned)__float2bfloat16(of(x, y)).bits << shift;
	}
	return d;
}
inline unsigned add_bf16x2(unsigned a, unsigned b) {
	return each_bf16x2(a, b, [](float x, float y) { return x + y; });
}
inline unsigned multiply_bf16x2(unsigned a, unsigned b) {
	return each_bf16x2(a, b, [](float x, float y) { return x * y; });
}
