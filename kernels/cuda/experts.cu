// Experts of few rows: a router's outputs become each row's experts and their weights in device memory, and two kernels
// read the weights of those alone, through a table of addresses. A row's sums depend on the row alone: a warp has a
// column of one row, its lanes' sums are added as a tree, experts in the order of their numbers.
#include "blocks.h"
#include "pointwise.h"

constexpr int EXPERT_WARPS = 8;     // of a block
constexpr int MOST_EXPERTS = 512;   // as in experts.go

struct Expert {
	const void *gate, *up, *down;                      // [width, k] twice, [n, width]
	const float *gate_bias, *up_bias, *down_bias;      // or null
	long long width;
};

// choice [rows, slots] and weights [rows, slots] of logits [rows, experts]; a block of one warp has a row. Scores are
// computed and summed in float64 in the order of the experts; of equal ones the lower number is chosen. Of more than one
// group only the top_groups with the largest sums of their two best scores keep theirs, the others have 0. The slot after
// top_k, where there is one, is of the expert for all rows, with the logistic function of its gate [rows], or 1.
extern "C" __global__ void route_experts(int *choice, float *weights, const float *logits, const float *correction, const float *gates,
                                         int experts, int top_k, int slots, int groups, int top_groups, int logistic, int normalise, double scale) {
	__shared__ double scores[MOST_EXPERTS], ranked[MOST_EXPERTS], sums[MOST_EXPERTS];
	__shared__ int chosen[MOST_EXPERTS], kept[MOST_EXPERTS];
	const int lane = threadIdx.x, row = blockIdx.x;
	logits += (size_t)row * experts;
	float top = -INFINITY;
	for (int e = lane; e < experts; e += 32) top = fmaxf(top, logits[e]);
	top = warp_max(top);
	for (int e = lane; e < experts; e += 32) {
		double x = logits[e];
		scores[e] = logistic ? 1 / (1 + exp(-x)) : exp(x - (double)top);
		chosen[e] = 0;
	}
	__syncthreads(); // all scores are there
	double sum = 0;
	if (!logistic) {
		for (int e = 0; e < experts; e++) sum += scores[e];
		__syncthreads(); // all have summed
		for (int e = lane; e < experts; e += 32) scores[e] /= sum;
	}
	for (int e = lane; e < experts; e += 32) ranked[e] = correction ? scores[e] + (double)correction[e] : scores[e];
	if (groups > 1) {
		const int size = experts / groups;
		__syncthreads(); // all are ranked
		for (int g = lane; g < groups; g += 32) {
			double first = ranked[g * size], second = -INFINITY;
			for (int i = 1; i < size; i++) {
				double v = ranked[g * size + i];
				if (v > first) second = first, first = v;
				else if (v > second) second = v;
			}
			sums[g] = size > 1 ? first + second : first;
			kept[g] = 0;
		}
		__syncthreads(); // the groups have sums
		if (lane == 0)
			for (int i = 0; i < top_groups; i++) {
				int at = groups;
				for (int g = 0; g < groups; g++)
					if (!kept[g] && (at == groups || sums[g] > sums[at])) at = g;
				kept[at] = 1;
			}
		__syncthreads(); // the groups are chosen
		for (int e = lane; e < experts; e += 32)
			if (e / size >= groups || !kept[e / size]) ranked[e] = 0;
	}
	for (int i = 0; i < top_k; i++) {
		double best = 0;
		int at = experts;
		for (int e = lane; e < experts; e += 32)
			if (!chosen[e] && (at == experts || ranked[e] > best)) best = ranked[e], at = e;
		for (int d = 16; d; d /= 2) {
			double other = __shfl_xor_sync(0xffffffffu, best, d);
			int from = __shfl_xor_sync(0xffffffffu, at, d);
			if (from < experts && (at == experts || other > best || (other == best && from < at))) best = other, at = from;
		}
		if (at % 32 == lane) chosen[at] = 1;
	}
	__syncthreads(); // all are chosen
	if (lane) return;
	choice += (size_t)row * slots;
	weights += (size_t)row * slots;
	double whole = 0;
	int n = 0;
	for (int e = 0; e < experts; e++)
		if (chosen[e]) choice[n++] = e, whole += scores[e];
	for (int i = 0; i < top_k; i++) {
		double w = scores[choice[i]] * scale;
		weights[i] = (float)(normalise ? w / whole : w);
	}
	if (slots > top_k) {
		choice[top_k] = experts;
		weights[top_k] = gates ? (float)(1 / (1 + exp(-(double)gates[row]))) : 1;
	}
}
HOST_KERNEL(route_experts)

static __device__ __forceinline__ void widen(float (&v)[4], const float *w) {
	float4 u = __ldcs(reinterpret_cast<const float4 *>(w));
	v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
}
static __device__ __forceinline__ void widen(float (&v)[8], const __nv_bfloat16 *w) {
	uint4 u = __ldcs(reinterpret_cast<const uint4 *>(w));
	unsigned pairs[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
	for (int i = 0; i < 4; i++) {
		unsigned low = pairs[i] << 16, high = pairs[i] & 0xffff0000u;
		memcpy(&v[2 * i], &low, 4);
		memcpy(&v[2 * i + 1], &high, 4);
	}
}

// The lane's part of the product of w [k] and x [k]. k is a multiple of 16 bytes of w.
template <class T> static __device__ __forceinline__ float lane_dot(const T *w, const float *x, int k) {
	constexpr int EACH = 16 / sizeof(T);
	float sum = 0;
#pragma unroll 4
	for (int i = (threadIdx.x % 32) * EACH; i < k; i += 32 * EACH) {
		float v[EACH];
		widen(v, w + i);
#pragma unroll
		for (int p = 0; p < EACH; p += 4) {
			float4 a = *reinterpret_cast<const float4 *>(x + i + p);
			sum = fmaf(v[p + 3], a.w, fmaf(v[p + 2], a.z, fmaf(v[p + 1], a.y, fmaf(v[p], a.x, sum))));
		}
	}
	return sum;
}

// Products of x [k] and a row of one weight or two, which are summed beside each other.
template <class T> struct Numbers {
	template <int N> static __device__ __forceinline__ void dots(float (&sum)[N], const void *const (&w)[N], int row, const float *x, int k, int) {
#pragma unroll
		for (int j = 0; j < N; j++) sum[j] = lane_dot((const T *)w[j] + (size_t)row * k, x, k);
	}
};

// In blocks four lanes have 32 elements.
template <class F> struct InBlocks {
	template <int N> static __device__ __forceinline__ void dots(float (&sum)[N], const void *const (&w)[N], int row, const float *x, int k, int like) {
		const int lane = threadIdx.x % 32, t = lane % 4;
		const size_t first = (size_t)row * (k / F::ELEMS) * F::BYTES;
		unsigned nan[N];
#pragma unroll
		for (int j = 0; j < N; j++) sum[j] = 0, nan[j] = 0;
#pragma unroll 1
		for (int i = lane / 4 * 32; i < k; i += 256) {
			const float4 a[2] = {*reinterpret_cast<const float4 *>(x + i + 4 * t), *reinterpret_cast<const float4 *>(x + i + 16 + 4 * t)};
#pragma unroll
			for (int j = 0; j < N; j++) {
				F format;
				blocks::Part part;
				format.open((const unsigned char *)w[j] + first + i / F::ELEMS * F::BYTES, i % F::ELEMS / 64, t, like);
				format.part(part, i % F::ELEMS / 32 % 2);
#pragma unroll
				for (int h = 0; h < 2; h++) {
					const unsigned even = part.q[2 * h], odd = part.q[2 * h + 1];
					const float of = (a[h].x + a[h].y) + (a[h].z + a[h].w);
					float all = __uint_as_float(even << 16) * a[h].x;
					all = fmaf(__uint_as_float(odd << 16), a[h].y, all);
					all = fmaf(__uint_as_float(even & 0xffff0000u), a[h].z, all);
					all = fmaf(__uint_as_float(odd & 0xffff0000u), a[h].w, all);
					if (F::ABOVE) all = fmaf(-F::ABOVE, of, all);
					sum[j] = fmaf(part.scale[h], all, sum[j]);
					if (F::LOW) sum[j] = fmaf(-part.low, of, sum[j]);
					if (F::NANS) nan[j] |= part.nan[h];
				}
			}
		}
#pragma unroll
		for (int j = 0; j < N; j++)
			if (F::NANS && nan[j] & 0x80808080) sum[j] = __uint_as_float(0x7fc00000);
	}
};

// What a gate lets through, by the number of kernels.Gate.
static __device__ __forceinline__ float gated(int how, float gate, float up) {
	if (how == 0) return gate * sigmoid(gate) * up;
	if (how == 1) return 0.5f * gate * (1 + tanhf(0.7978845608028654f * (gate + 0.044715f * gate * gate * gate))) * up;
	const float limit = 7, g = fminf(gate, limit), u = fmaxf(-limit, fminf(limit, up));
	return g * (1 / (1 + expf(-1.702f * g))) * (u + 1);
}

// act [rows, slots, width]: what the gate lets through of up, of the row's expert of every slot. A warp has a column.
template <class T>
static __device__ __forceinline__ void expert_gates(float *act, const float *x, const Expert *table, const int *choice, int slots, int k, int width, int how, int like) {
	const int column = blockIdx.x * EXPERT_WARPS + threadIdx.x / 32, slot = blockIdx.y, row = blockIdx.z;
	const Expert e = table[choice[row * slots + slot]];
	if (column >= e.width) return;
	x += (size_t)row * k;
	float sums[2];
	T::dots(sums, {e.gate, e.up}, column, x, k, like);
	float gate = warp_sum(sums[0]), up = warp_sum(sums[1]);
	if (threadIdx.x % 32) return;
	if (e.gate_bias) gate += e.gate_bias[column];
	if (e.up_bias) up += e.up_bias[column];
	act[((size_t)row * slots + slot) * width + column] = gated(how, gate, up);
}

// y [all, n]: scale times the weighted sum of the row's experts; 0 of rows that do not count.
template <class T>
static __device__ __forceinline__ void expert_sums(float *y, const float *act, const Expert *table, const int *choice, const float *weights, int rows, int slots, int n, int width, float scale, int like) {
	const int column = blockIdx.x * EXPERT_WARPS + threadIdx.x / 32, row = blockIdx.y;
	if (column >= n) return;
	float total = 0;
	for (int slot = 0; row < rows && slot < slots; slot++) {
		const Expert e = table[choice[row * slots + slot]];
		float part[1];
		T::dots(part, {e.down}, column, act + ((size_t)row * slots + slot) * width, (int)e.width, like);
		float sum = scale * warp_sum(part[0]);
		if (e.down_bias) sum += e.down_bias[column];
		total = fmaf(weights[row * slots + slot], sum, total);
	}
	if (threadIdx.x % 32 == 0) y[(size_t)row * n + column] = total;
}

// like: what a format differs in (blocks.h).
#define EXPERTS(type, T)                                                                                                              \
	extern "C" __global__ void __launch_bounds__(EXPERT_WARPS * 32)                                                                   \
	expert_gates_##type(float *act, const float *x, const Expert *table, const int *choice, int slots, int k, int width, int how,     \
	                    int like) {                                                                                                   \
		expert_gates<T>(act, x, table, choice, slots, k, width, how, like);                                                           \
	}                                                                                                                                 \
	HOST_KERNEL(expert_gates_##type)                                                                                                  \
	extern "C" __global__ void __launch_bounds__(EXPERT_WARPS * 32)                                                                   \
	expert_sums_##type(float *y, const float *act, const Expert *table, const int *choice, const float *weights, int rows, int slots, \
	                   int n, int width, float scale, int like) {                                                                     \
		expert_sums<T>(y, act, table, choice, weights, rows, slots, n, width, scale, like);                                           \
	}                                                                                                                                 \
	HOST_KERNEL(expert_sums_##type)
EXPERTS(f32, Numbers<float>)
EXPERTS(bf16, Numbers<__nv_bfloat16>)
EXPERTS(e4m3_bf16, InBlocks<blocks::E4M3_BF16>)
EXPERTS(e2m1_e8m0, InBlocks<blocks::E2M1_E8M0<false>>)
EXPERTS(i4, InBlocks<blocks::I4<false>>)
EXPERTS(q4_k, InBlocks<blocks::Q4_K>)
EXPERTS(q5_k, InBlocks<blocks::Q5_K>)
EXPERTS(q6_k, InBlocks<blocks::Q6_K>)
EXPERTS(q8_0, InBlocks<blocks::Q8_0>)
