// The arithmetic of a tensor core's products: mma, wgmma and the library's.
#pragma once
#include <math.h>
#include <string.h>

namespace hc {

// Rounds toward zero. Tensor cores do not round their sums to nearest: published
// measurements of the A100 say that it adds 8 products and the accumulator and
// truncates the result. HOSTCUDA_MMA=truncate is that model, to see whether a
// test's tolerance would hold on a device too.
inline float truncated(double exact) {
	float f = (float)exact;
	unsigned bits;
	memcpy(&bits, &f, 4);
	bits -= fabs((double)f) > fabs(exact); // the next one toward zero, infinity's too
	memcpy(&f, &bits, 4);
	return f;
}

// Adds the product of a's 16 columns and b's 16 rows to columns of d, a multiple of 8. Each
// sum is in order of k, in float32, or in two truncated steps of 8 products.
template <int WIDTH>
void add_product(float (*d)[WIDTH], const float (*a)[16], const float (*b)[WIDTH], int columns, bool truncate) {
	typedef float floats __attribute__((vector_size(32), aligned(4), may_alias)); // sums beside each other
	for (int m = 0; m < 16; m++)
		for (int n = 0; n < columns; n += 8) {
			float *sums = d[m] + n;
			if (truncate)
				for (int k = 0; k < 16; k += 8) {
					double exact[8];
					for (int j = 0; j < 8; j++) exact[j] = sums[j];
					for (int i = k; i < k + 8; i++)
						for (int j = 0; j < 8; j++) exact[j] += (double)a[m][i] * b[i][n + j];
					for (int j = 0; j < 8; j++) sums[j] = truncated(exact[j]);
				}
			else {
				floats sum = *(floats *)sums;
				for (int k = 0; k < 16; k++) sum += a[m][k] * *(const floats *)&b[k][n];
				*(floats *)sums = sum;
			}
		}
}

} // namespace hc
