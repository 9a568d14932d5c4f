// Logits that are bounded softly (kernels.Attend).
#pragma once
#include "prims.h"

// A soft_cap of 0 leaves the logit.
static __device__ __forceinline__ float soft_capped(float logit, float soft_cap) {
	return soft_cap > 0 ? soft_cap * tanhf(logit / soft_cap) : logit;
}

// The derivative of soft_capped where it gave this logit.
static __device__ __forceinline__ float cap_slope(float capped, float soft_cap) {
	return soft_cap > 0 ? 1 - capped / soft_cap * (capped / soft_cap) : 1;
}
