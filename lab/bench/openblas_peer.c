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

static double read_clock(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
static double now(void) { return read_clock(measured); }
static double wall(void) { return read_clock(CLOCK_MONOTONIC); }

static void product(long m, long n, long k, const float *a, const float *b, float *c) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, a, k, b, k, 0, c, n);
}

static float *operand(float *old, size_t n) {
  free(old);
  float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
  if (!x) exit(1);
  for (size_t i = 0; i < n; i++) x[i] = (float)(i % 17) / 17 - 0.5f;
  return x;
}

int main(void) {
  const char *name = getenv("GLIMPSE_BENCH_CLOCK"); // as in internal/benchclock
  if (name && !strcmp(name, "cpu")) measured = CLOCK_PROCESS_CPUTIME_ID;
  long m, n, k, times, m0 = 0, n0 = 0, k0 = 0;
  float *a = NULL, *b = NULL, *c = NULL;
  while (scanf("%ld %ld %ld %ld", &m, &n, &k, &times) == 4) {
    if (m != m0 || n != n0 || k != k0) {
      a = operand(a, m * k), b = operand(b, n * k), c = operand(c, m * n);
      m0 = m, n0 = n, k0 = k;
    }
    for (double warm = wall() + 0.05; wall() < warm;) product(m, n, k, a, b, c);
    double start = now();
    for (long i = 0; i < times; i++) product(m, n, k, a, b, c);
    printf("%.9f\n", (now() - start) / times);
    fflush(stdout);
  }
  return 0;
}
