// What kernels of single operations share with those that do several at once, whose
// numbers must have the same bits: no sum here is left to the compiler to contract.
#pragma once
#include "prims.h"

static __device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// Turns the pair u, v by an angle.
static __device__ __forceinline__ void turn(float *u, float *v, float cosine, float sine) {
	float a = *u, b = *v;
	*u = fmaf(cosine, a, -(sine * b));
	*v = fmaf(sine, a, cosine * b);
}
