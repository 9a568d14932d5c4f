// A peer for the benchmarks of internal/simd, built by bench_cpu.sh: reads a line
// "m n k times" and answers with the seconds that OpenBLAS takes for one of so many
// products c [m, n] = a [m, k] · b [n, k]ᵀ in single precision, one after the other. Operands are kept as long as
// the shape stays the same. It is never part of the product.
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static clockid_t measured = CLOCK_MONOTONIC;

static double now(void) {
  struct timespec t;
  clock_gettime(measured, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static float *operand(float *old, size_t n) {
  free(old);
  float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
  if (!x) exit(1);
  for (size_t i = 0; i < n; i++) x[i] = (float)(i % 17) / 17 - 0.5f;
  return x;
}

int main(void) {
  const char *name = getenv("GLIMPSE_BENCH_CLOCK"); // as in internal/clock
  if (name && !strcmp(name, "cpu")) measured = CLOCK_PROCESS_CPUTIME_ID;
  long m, n, k, times, m0 = 0, n0 = 0, k0 = 0;
  float *a = NULL, *b = NULL, *c = NULL;
  while (scanf("%ld %ld %ld %ld", &m, &n, &k, &times) == 4) {
    if (m != m0 || n != n0 || k != k0) {
      a = operand(a, m * k), b = operand(b, n * k), c = operand(c, m * n);
      m0 = m, n0 = n, k0 = k;
    }
    double start = 0;
    for (long i = -1; i < times; i++) { // the first is a warm-up
      if (i == 0) start = now();
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, a, k, b, k, 0, c, n);
    }
    printf("%.9f\n", (now() - start) / times);
    fflush(stdout);
  }
  return 0;
}
