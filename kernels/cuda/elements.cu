// Operations on elements and rows: one thread per element unless a kernel says
// otherwise. Scalars that the host has as float64 come as float.
#include "adamw.h"
#include "map.h"
#include "pointwise.h"

#define ELEMENT(n)             \
	size_t i = thread_index(); \
	if (i >= (n)) return

extern "C" __global__ void fill_f32(float *y, float v, size_t n) { ELEMENT(n); y[i] = v; }
extern "C" __global__ void fill_f64(double *y, double v, size_t n) { ELEMENT(n); y[i] = v; }
extern "C" __global__ void fill_b16(unsigned short *y, int bits, size_t n) { ELEMENT(n); y[i] = (unsigned short)bits; }
HOST_KERNEL(fill_f32)
HOST_KERNEL(fill_f64)
HOST_KERNEL(fill_b16)

// y [rows, width] = rows ids of table.
template <class Y, class T>
static __device__ __forceinline__ void gather(Y *y, const T *table, const int *ids, size_t n, size_t width) {
	ELEMENT(n);
	y[i] = to_float(table[ids[i / width] * width + i % width]);
}
extern "C" __global__ void gather_f32(float *y, const float *t, const int *ids, size_t n, size_t width) { gather(y, t, ids, n, width); }
extern "C" __global__ void gather_f64(float *y, const double *t, const int *ids, size_t n, size_t width) { gather(y, t, ids, n, width); }
extern "C" __global__ void gather_bf16(float *y, const __nv_bfloat16 *t, const int *ids, size_t n, size_t width) { gather(y, t, ids, n, width); }
extern "C" __global__ void gather_f16(float *y, const __half *t, const int *ids, size_t n, size_t width) { gather(y, t, ids, n, width); }
extern "C" __global__ void gather_b16(unsigned short *y, const unsigned short *t, const int *ids, size_t n, size_t width) {
	ELEMENT(n);
	y[i] = t[ids[i / width] * width + i % width];
}
HOST_KERNEL(gather_f32)
HOST_KERNEL(gather_f64)
HOST_KERNEL(gather_bf16)
HOST_KERNEL(gather_f16)
HOST_KERNEL(gather_b16)

// y [rows, dim] = head h of x [rows, heads, dim]; n = rows·dim.
extern "C" __global__ void copy_head_f32(float *y, const float *x, size_t n, int heads, int dim, int h) {
	ELEMENT(n);
	y[i] = x[(i / dim * heads + h) * dim + i % dim];
}
extern "C" __global__ void copy_head_bf16(__nv_bfloat16 *y, const float *x, size_t n, int heads, int dim, int h) {
	ELEMENT(n);
	y[i] = __float2bfloat16(x[(i / dim * heads + h) * dim + i % dim]);
}
HOST_KERNEL(copy_head_f32)
HOST_KERNEL(copy_head_bf16)

extern "C" __global__ void to_bf16(__nv_bfloat16 *y, const float *x, size_t n) {
	map<1, 1>({y}, {x}, n, [](float *out, const float *in) { out[0] = in[0]; });
}
extern "C" __global__ void from_f16(float *y, const __half *x, size_t n) { ELEMENT(n); y[i] = __half2float(x[i]); }
extern "C" __global__ void from_bf16(float *y, const __nv_bfloat16 *x, size_t n) { ELEMENT(n); y[i] = __bfloat162float(x[i]); }
HOST_KERNEL(to_bf16)
HOST_KERNEL(from_bf16)

// y [3, n]: three bf16 parts whose sum is x to float32's own precision.
extern "C" __global__ void split_bf16(__nv_bfloat16 *y, const float *x, size_t n) {
	ELEMENT(n);
	float rest = x[i];
	for (int part = 0; part < 3; part++) {
		__nv_bfloat16 v = __float2bfloat16(rest);
		y[part * n + i] = v;
		rest -= __bfloat162float(v);
	}
}
// y [n] = alpha · (sum of the three parts) + beta · y, the smallest parts first.
extern "C" __global__ void join_parts(float *y, const float *parts, float alpha, float beta, size_t n) {
	ELEMENT(n);
	float sum = alpha * (parts[i] + (parts[n + i] + parts[2 * n + i]));
	y[i] = beta == 0 ? sum : sum + beta * y[i];
}
HOST_KERNEL(split_bf16)
HOST_KERNEL(join_parts)
HOST_KERNEL(from_f16)

// y [rows, width] += bias [width].
extern "C" __global__ void add_bias(float *y, const float *bias, size_t n, size_t width) { ELEMENT(n); y[i] += bias[i % width]; }
extern "C" __global__ void scale(float *y, float factor, size_t n) { ELEMENT(n); y[i] = factor == 0 ? 0 : factor * y[i]; }
extern "C" __global__ void add(float *y, const float *a, const float *b, size_t n) {
	map<2, 1>({y}, {a, b}, n, [](float *out, const float *in) { out[0] = in[0] + in[1]; });
}
extern "C" __global__ void axpy(float *y, float alpha, const float *x, size_t n) {
	map<2, 1>({y}, {y, x}, n, [alpha](float *out, const float *in) { out[0] = in[0] + alpha * in[1]; });
}
HOST_KERNEL(add_bias)
HOST_KERNEL(scale)
HOST_KERNEL(add)
HOST_KERNEL(axpy)

// Rotates the first 2·half dimensions of x [rows, heads, dim] by the angles of rows pos of
// cosines and sines [positions, half]. Blocks (row, z) of 256 threads: a thread has four pairs that follow
// each other, or, where heads don't begin at whole vectors, four a block apart. sign −1 rotates back.
extern "C" __global__ void rope(float *x, const int *pos, const float *cosines, const float *sines, int heads, int half, int dim, float sign) {
	const unsigned pairs = (unsigned)heads * half, first = blockIdx.y * 1024u;
	const size_t angle = (size_t)pos[blockIdx.x] * half;
	x += (size_t)blockIdx.x * heads * dim;
	if (half % 4 || dim % 4 || ((size_t)x | (size_t)cosines | (size_t)sines) % 16) {
#pragma unroll 1
		for (unsigned i = first + threadIdx.x; i < first + 1024u && i < pairs; i += blockDim.x) {
			const unsigned head = i / half, j = i - head * half;
			float *a = x + (size_t)head * dim + j;
			turn(a, a + half, cosines[angle + j], sign * sines[angle + j]);
		}
		return;
	}
	const unsigned i = first + 4 * threadIdx.x, head = i / half, j = i - head * half;
	if (i >= pairs) return;
	float4 *a = reinterpret_cast<float4 *>(x + (size_t)head * dim + j), *b = reinterpret_cast<float4 *>(x + (size_t)head * dim + j + half);
	float4 u = *a, v = *b;
	const float4 c = *reinterpret_cast<const float4 *>(cosines + angle + j), s = *reinterpret_cast<const float4 *>(sines + angle + j);
	turn(&u.x, &v.x, c.x, sign * s.x), turn(&u.y, &v.y, c.y, sign * s.y), turn(&u.z, &v.z, c.z, sign * s.z), turn(&u.w, &v.w, c.w, sign * s.w);
	*a = u, *b = v;
}
HOST_KERNEL(rope)

// Of activations that products round, as those that end in _bf16 do.
template <class Y> static __device__ __forceinline__ void silu_mul_of(Y *y, const float *gate, const float *up, size_t n) {
	map<2, 1>({y}, {gate, up}, n, [](float *out, const float *in) { out[0] = in[0] * sigmoid(in[0]) * in[1]; });
}
extern "C" __global__ void silu_mul(float *y, const float *gate, const float *up, size_t n) { silu_mul_of(y, gate, up, n); }
extern "C" __global__ void silu_mul_bf16(__nv_bfloat16 *y, const float *gate, const float *up, size_t n) { silu_mul_of(y, gate, up, n); }
extern "C" __global__ void silu_mul_grad(float *dgate, float *dup, const float *gate, const float *up, const float *dy, size_t n) {
	map<3, 2>({dgate, dup}, {gate, up, dy}, n, [](float *out, const float *in) {
		const float g = in[0], s = sigmoid(g), d = in[2];
		out[0] = d * in[1] * s * (1 + g * (1 - s));
		out[1] = d * g * s;
	});
}
HOST_KERNEL(silu_mul)
HOST_KERNEL(silu_mul_bf16)
HOST_KERNEL(silu_mul_grad)

// What gates let through, and their gradients, where SiLU is not the gate: kernels.Gate says what each is.
struct GELUTanh {
	static __device__ __forceinline__ float mul(float g, float u) { return g * share(g) * u; }
	static __device__ __forceinline__ void grad(float *dg, float *du, float g, float u, float d) {
		const double x = g, s = 1 / (1 + exp(-2 * (double)ROOT * (x + (double)CUBE * x * x * x))); // in double: the terms cancel
		*dg = (float)(d * u * s * (1 + x * (1 - s) * (2 * (double)ROOT) * (1 + 3 * (double)CUBE * x * x)));
		*du = (float)(d * x * s);
	}
	static constexpr float ROOT = 0.79788456080286536f, CUBE = 0.044715f; // √(2/π)
	// (1 + tanh(z)) / 2, which keeps the digits of large negative z
	static __device__ __forceinline__ float share(float g) { return sigmoid(2 * ROOT * (g + CUBE * g * g * g)); }
};
struct ClampedSwiGLU {
	static __device__ __forceinline__ float mul(float g, float u) {
		g = g > LIMIT ? LIMIT : g; // fminf would lose a NaN
		return g * sigmoid(SHARP * g) * (clamp(u) + 1);
	}
	static __device__ __forceinline__ void grad(float *dg, float *du, float gate, float up, float d) {
		const double g = gate > LIMIT ? LIMIT : gate, u = clamp(up), s = 1 / (1 + exp(-(double)SHARP * g)); // in double: the terms cancel
		*dg = gate > LIMIT ? 0 : (float)(d * s * (1 + (double)SHARP * g * (1 - s)) * (u + 1));
		*du = u == up ? (float)(d * g * s) : 0;
	}
	static constexpr float LIMIT = 7, SHARP = 1.702f;
	static __device__ __forceinline__ float clamp(float u) { return u > LIMIT ? LIMIT : u < -LIMIT ? -LIMIT : u; }
};
template <class G, class Y> static __device__ __forceinline__ void gate_mul_of(Y *y, const float *gate, const float *up, size_t n) {
	map<2, 1>({y}, {gate, up}, n, [](float *out, const float *in) { out[0] = G::mul(in[0], in[1]); });
}
template <class G>
static __device__ __forceinline__ void gate_grad_of(float *dgate, float *dup, const float *gate, const float *up, const float *dy, size_t n) {
	map<3, 2>({dgate, dup}, {gate, up, dy}, n, [](float *out, const float *in) { G::grad(out, out + 1, in[0], in[1], in[2]); });
}
#define GATE(name, G)                                                                                                                               \
	extern "C" __global__ void name(float *y, const float *gate, const float *up, size_t n) { gate_mul_of<G>(y, gate, up, n); }                     \
	extern "C" __global__ void name##_bf16(__nv_bfloat16 *y, const float *gate, const float *up, size_t n) { gate_mul_of<G>(y, gate, up, n); }      \
	extern "C" __global__ void name##_grad(float *dgate, float *dup, const float *gate, const float *up, const float *dy, size_t n) {               \
		gate_grad_of<G>(dgate, dup, gate, up, dy, n);                                                                                               \
	}                                                                                                                                               \
	HOST_KERNEL(name)                                                                                                                               \
	HOST_KERNEL(name##_bf16)                                                                                                                        \
	HOST_KERNEL(name##_grad)
GATE(gelu_tanh_mul, GELUTanh)
GATE(clamped_swiglu_mul, ClampedSwiGLU)

// erfc keeps the digits of large negative arguments.
template <class Y> static __device__ __forceinline__ void gelu_of(Y *y, const float *x, size_t n) {
	map<1, 1>({y}, {x}, n, [](float *out, const float *in) { out[0] = 0.5f * in[0] * erfcf(-in[0] * 0.70710678118654752f); });
}
extern "C" __global__ void gelu(float *y, const float *x, size_t n) { gelu_of(y, x, n); }
extern "C" __global__ void gelu_bf16(__nv_bfloat16 *y, const float *x, size_t n) { gelu_of(y, x, n); }
extern "C" __global__ void gelu_grad(float *dx, const float *x, const float *dy, size_t n) {
	map<2, 1>({dx}, {x, dy}, n, [](float *out, const float *in) {
		double z = in[0], density = exp(-z * z / 2) * 0.3989422804014327; // in double: the terms cancel near −0.75
		out[0] = (float)(in[1] * (0.5 * erfc(-z * 0.70710678118654752) + z * density));
	});
}
// y = limit · tanh(x / limit).
extern "C" __global__ void soft_cap(float *y, const float *x, float limit, size_t n) {
	map<1, 1>({y}, {x}, n, [limit](float *out, const float *in) { out[0] = limit * tanhf(in[0] / limit); });
}
HOST_KERNEL(soft_cap)
HOST_KERNEL(gelu)
HOST_KERNEL(gelu_bf16)
HOST_KERNEL(gelu_grad)

// acc = log(exp(acc + la) + exp(other + lo)); −Inf is the logarithm of nothing.
extern "C" __global__ void merge_scores(float *acc, const float *other, float la, float lo, size_t n) {
	ELEMENT(n);
	float x = acc[i] + la, y = other[i] + lo, top = fmaxf(x, y), low = fminf(x, y);
	acc[i] = top == -INFINITY ? top : top + log1pf(expf(low - top));
}
HOST_KERNEL(merge_scores)

extern "C" __global__ void adamw(float *p, const float *g, float *m, float *v, size_t n, double beta1, double beta2, double correct1,
                                 double correct2, double epsilon, double rate, double decay, double grad_scale) {
	ELEMENT(n);
	adamw_element(p + i, g[i], m + i, v + i, beta1, beta2, correct1, correct2, epsilon, rate, decay, grad_scale);
}
HOST_KERNEL(adamw)
