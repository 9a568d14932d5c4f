// RMSNorm of few wide rows, as in decoding steps: what they wait for is the way to memory
// and back, so a thread asks for all it needs, of the row, of what is added to it and of the
// weight, before it uses any of it, and keeps the row in registers.
#include "prims.h"

constexpr int LOADS = 4; // of four elements, of a thread

// A block per row of x [rows, width]: y = its norm; with delta, x += delta before. width is a
// multiple of 4 and at most 4 · LOADS · threads, all tensors begin at 16 bytes.
extern "C" __global__ void __launch_bounds__(1024)
few_rms_norm(float *y, float *x, const float *delta, const float *w, int width, float eps) {
	__shared__ float partial[32];
	grid_release();
	size_t row = (size_t)blockIdx.x * width;
	float4 v[LOADS], more[LOADS], weight[LOADS];
#pragma unroll
	for (int i = 0; i < LOADS; i++) {
		int d = 4 * (i * blockDim.x + threadIdx.x);
		v[i] = more[i] = weight[i] = float4{0, 0, 0, 0};
		if (d >= width) continue;
		v[i] = *reinterpret_cast<const float4 *>(x + row + d);
		if (delta) more[i] = *reinterpret_cast<const float4 *>(delta + row + d);
		weight[i] = *reinterpret_cast<const float4 *>(w + d);
	}
	float s = 0;
#pragma unroll
	for (int i = 0; i < LOADS; i++) {
		if (delta) v[i].x += more[i].x, v[i].y += more[i].y, v[i].z += more[i].z, v[i].w += more[i].w;
		s = fmaf(v[i].w, v[i].w, fmaf(v[i].z, v[i].z, fmaf(v[i].y, v[i].y, fmaf(v[i].x, v[i].x, s))));
	}
	float inv = 1 / sqrtf(block_sum(s, partial) / width + eps);
#pragma unroll
	for (int i = 0; i < LOADS; i++) {
		int d = 4 * (i * blockDim.x + threadIdx.x);
		if (d >= width) continue;
		if (delta) *reinterpret_cast<float4 *>(x + row + d) = v[i];
		*reinterpret_cast<float4 *>(y + row + d) =
			float4{v[i].x * inv * weight[i].x, v[i].y * inv * weight[i].y, v[i].z * inv * weight[i].z, v[i].w * inv * weight[i].w};
	}
}
HOST_KERNEL(few_rms_norm)
