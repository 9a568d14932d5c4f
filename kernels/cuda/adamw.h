// One element of an AdamW step.
#pragma once
#include "prims.h"

// Loshchilov & Hutter 2019, algorithm 2, in double like the CPU's: it is bound by
// memory. decay = learning rate · weight decay.
static __device__ __forceinline__ void adamw_element(float *p, float g, float *m, float *v, double beta1, double beta2, double correct1, double correct2,
                                                     double epsilon, double rate, double decay, double grad_scale) {
	double gi = g * grad_scale;
	double mi = beta1 * *m + (1 - beta1) * gi;
	double vi = beta2 * *v + (1 - beta2) * gi * gi;
	*m = (float)mi;
	*v = (float)vi;
	double update = mi / correct1 / (sqrt(vi / correct2) + epsilon);
	*p = (float)(*p - rate * update - decay * *p);
}
