// Vectors of 16 floats, layouts of operands, and products of blocks. A part of layers.cpp.

vec load(const float* p) { return _mm512_loadu_ps(p); }
void store(float* p, vec x) { _mm512_storeu_ps(p, x); }
vec splat(float x) { return _mm512_set1_ps(x); }
__m256i load16(const bf16* p) { return _mm256_loadu_si256((const __m256i*)p); }
vec widen(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
void store(bf16* p, vec x) { _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(x)); }
__m512i narrow(vec low, vec high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

__m512i load32(const bf16* p) { return _mm512_loadu_si512(p); }
__m512i load32(const float* p) { return narrow(load(p), load(p + 16)); }
void store(void* p, __m512i x) { _mm512_storeu_si512(p, x); }

// 2^x to about 20 bits; 0 for what is far below.
vec exp2(vec x) {
  vec n = _mm512_roundscale_ps(x, 0), f = _mm512_sub_ps(x, n);
  vec p = splat(1.33952965e-3f);
  for (float c : {9.61833034e-3f, 5.55034002e-2f, 2.40226507e-1f, 6.93147182e-1f, 1.0f}) p = _mm512_fmadd_ps(p, f, splat(c));
  return _mm512_scalef_ps(p, n);
}

vec sigmoid(vec x) {
  vec e = exp2(_mm512_min_ps(_mm512_mul_ps(x, splat(-LOG2E)), splat(120.0f)));
  vec y = _mm512_add_ps(e, splat(1.0f)), r = _mm512_rcp14_ps(y);
  return _mm512_mul_ps(r, _mm512_fnmadd_ps(y, r, splat(2.0f)));
}

// 16 columns of two rows, interleaved.
__m512i interleave(__m512i rows) {
  alignas(64) static const int16_t order[32] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                                8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(order), rows);
}
__m512i pair(const float* a, const float* b) { return interleave(narrow(load(a), load(b))); }
__m512i pair(const bf16* a, const bf16* b) {
  return interleave(_mm512_inserti64x4(_mm512_castsi256_si512(load16(a)), load16(b), 1));
}

void transpose16(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]), t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88), t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88), t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; i++) r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88), r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
}

// Layouts. Rows are multiples of 32 and columns of 16, or the other way round where it says.

// out [rows/2][columns][2] of x [rows, columns].
template <typename X> void paired(const X* x, int64_t ld, int64_t rows, int64_t columns, bf16* out) {
  for (int64_t i = 0; i < rows; i += 2)
    for (int64_t j = 0; j < columns; j += 16) store(out + i * columns + 2 * j, pair(x + i * ld + j, x + (i + 1) * ld + j));
}

// out [columns/2][stride][2] of the transpose of x [rows, columns]; columns are the multiple of 32.
template <typename X> void paired_transpose(const X* x, int64_t ld, int64_t rows, int64_t columns, bf16* out, int64_t stride) {
  __m512i r[16];
  for (int64_t i = 0; i < rows; i += 16)
    for (int64_t j = 0; j < columns; j += 32) {
      for (int k = 0; k < 16; k++) r[k] = load32(x + (i + k) * ld + j);
      transpose16(r);
      for (int k = 0; k < 16; k++) store(out + ((j / 2 + k) * stride + i) * 2, r[k]);
    }
}

// out [columns, rows] of x [rows, columns].
void transposed(const bf16* x, int64_t ld, int64_t rows, int64_t columns, bf16* out) {
  __m512i r[16];
  for (int64_t i = 0; i < rows; i += 32)
    for (int64_t j = 0; j < columns; j += 16) {
      for (int k = 0; k < 16; k++) r[k] = pair(x + (i + 2 * k) * ld + j, x + (i + 2 * k + 1) * ld + j);
      transpose16(r);
      for (int k = 0; k < 16; k++) store(out + (j + k) * rows + i, r[k]);
    }
}

// The transpose of 16 rows of x, each times a factor.
void columns16(const float* x, int64_t ld, vec factor, vec (&out)[16]) {
  __m512i r[16];
  for (int k = 0; k < 16; k++) r[k] = _mm512_castps_si512(_mm512_mul_ps(load(x + k * ld), factor));
  transpose16(r);
  for (int k = 0; k < 16; k++) out[k] = _mm512_castsi512_ps(r[k]);
}

// out [columns, rows] of x [rows, columns], both multiples of 16.
void turn(const float* x, int64_t rows, int64_t columns, float* out) {
  vec r[16];
  for (int64_t i = 0; i < rows; i += 16)
    for (int64_t j = 0; j < columns; j += 16) {
      columns16(x + i * columns + j, columns, splat(1), r);
      for (int k = 0; k < 16; k++) store(out + (j + k) * rows + i, r[k]);
    }
}

// c [m, n] = (or += if add) a [m, k] times b, paired, without AMX: parts of both are widened to
// floats that stay in the cache, 8 rows and 32 columns of c in registers. Products of pairs of
// bfloat16 (AVX512_BF16) take twice the time on processors of Intel. m is a multiple of 8, n and
// k of 32.
void product_avx512(int64_t m, int64_t n, int64_t k, const bf16* a, int64_t lda, const bf16* b, float* c, bool add) {
  constexpr int ROWS = 8, COLUMNS = 32, MOST = 128, DEPTH = 256; // MOST rows of a
  alignas(64) static thread_local float wide_a[MOST * DEPTH], wide_b[DEPTH * COLUMNS];
  const __m512i high = _mm512_set1_epi32(0xffff0000);
  for (int64_t from = 0; from < k; from += DEPTH) {
    const int64_t depth = std::min<int64_t>(DEPTH, k - from);
    for (int64_t top = 0; top < m; top += MOST) {
      const int64_t rows = std::min<int64_t>(MOST, m - top);
      for (int64_t i = 0; i < rows; i++)
        for (int64_t p = 0; p < depth; p += 16) store(wide_a + i * depth + p, widen(load16(a + (top + i) * lda + from + p)));
      for (int64_t j = 0; j < n; j += COLUMNS) {
        for (int64_t p = 0; p < depth; p += 2)
          for (int half = 0; half < 2; half++) {
            __m512i pairs = load32(b + (from + p) * n + 2 * (j + 16 * half));
            store(wide_b + p * COLUMNS + 16 * half, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
            store(wide_b + (p + 1) * COLUMNS + 16 * half, _mm512_castsi512_ps(_mm512_and_si512(pairs, high)));
          }
        for (int64_t i = 0; i < rows; i += ROWS) {
          float* out = c + (top + i) * n + j;
          vec sum[ROWS][2];
#pragma GCC unroll 8
          for (int r = 0; r < ROWS; r++)
            for (int half = 0; half < 2; half++) sum[r][half] = add || from > 0 ? load(out + r * n + 16 * half) : splat(0);
          const float* left = wide_a + i * depth;
          for (int64_t p = 0; p < depth; p++) {
            const vec first = load(wide_b + p * COLUMNS), second = load(wide_b + p * COLUMNS + 16);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
              const vec x = splat(left[r * depth + p]);
              sum[r][0] = _mm512_fmadd_ps(x, first, sum[r][0]), sum[r][1] = _mm512_fmadd_ps(x, second, sum[r][1]);
            }
          }
#pragma GCC unroll 8
          for (int r = 0; r < ROWS; r++) store(out + r * n, sum[r][0]), store(out + r * n + 16, sum[r][1]);
        }
      }
    }
  }
}

// c [m, n] = (or += if add) a [m, k] times b, paired.
const bool has_amx = at::cpu::init_amx();
void product(int64_t m, int64_t n, int64_t k, const bf16* a, int64_t lda, const bf16* b, float* c, bool add) {
  if (!has_amx) return product_avx512(m, n, k, a, lda, b, c, add);
  at::native::cpublas::brgemm(m, n, k, lda, n, n, add, a, b, c);
}
