// The forward pass: blocks of tokens between two attentions, and attention. A part of layers.cpp.

// Root mean square norm of a block.
float inverse_rms(const float* x, int64_t d, float eps) {
  vec sum = splat(0);
  for (int64_t j = 0; j < d; j += 16) sum = _mm512_fmadd_ps(load(x + j), load(x + j), sum);
  return 1 / std::sqrt(_mm512_reduce_add_ps(sum) / d + eps);
}

void norm(const Shape& s, const float* x, const float* scale, bf16* h) {
  for (int64_t i = 0; i < TOKENS; i++, x += s.d, h += s.d) {
    vec r = splat(inverse_rms(x, s.d, s.eps));
    for (int64_t j = 0; j < s.d; j += 16) store(h + j, _mm512_mul_ps(_mm512_mul_ps(load(x + j), r), load(scale + j)));
  }
}

// Adds to dx what comes through the norm from dh, and to dscale.
void norm_backward(const Shape& s, const float* x, const float* scale, const float* dh, float* dx, float* dscale) {
  for (int64_t i = 0; i < TOKENS; i++, x += s.d, dh += s.d, dx += s.d) {
    vec r = splat(inverse_rms(x, s.d, s.eps)), dot = splat(0);
    for (int64_t j = 0; j < s.d; j += 16) {
      vec y = _mm512_mul_ps(load(x + j), r), g = load(dh + j);
      store(dscale + j, _mm512_fmadd_ps(g, y, load(dscale + j)));
      dot = _mm512_fmadd_ps(_mm512_mul_ps(g, load(scale + j)), y, dot);
    }
    vec mean = splat(_mm512_reduce_add_ps(dot) / s.d);
    for (int64_t j = 0; j < s.d; j += 16) {
      vec y = _mm512_mul_ps(load(x + j), r), g = _mm512_mul_ps(load(dh + j), load(scale + j));
      store(dx + j, _mm512_fmadd_ps(r, _mm512_fnmadd_ps(y, mean, g), load(dx + j)));
    }
  }
}

// Forward.

void project_qkv(const Shape& s, const Weights& w, Saved& to, Thread& t, const float* x, int64_t begin, int64_t count, const float* cos, const float* sin) {
  int64_t n = s.qkv();
  bf16* h = t.hb.get(TOKENS * s.d);
  float* y = t.gate_up.get(TOKENS * 2 * s.ff + TOKENS * n);
  norm(s, x, w.n1, h);
  product(TOKENS, n, s.d, h, s.d, w.qkv.p, y, false);
  for (int64_t i = 0; i < count; i++, y += n) {
    bf16* out = to.qkv.p + (begin + i) * n;
    vec c = load(cos + (begin + i) % s.columns * 16), v = load(sin + (begin + i) % s.columns * 16);
    for (int64_t j = 0; j < n; j += DH) {
      vec a = load(y + j), b = load(y + j + 16);
      bool rotates = j < (s.nh + s.nkv) * DH;
      vec first = rotates ? _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, v)) : a, second = rotates ? _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, v)) : b;
      store(out + j, narrow(first, second));
    }
  }
}

// From the outputs of attention to the next residual stream, in t.x.
void feed_forward(const Shape& s, const Weights& w, Saved& at, Thread& t, int64_t begin, int64_t count) {
  float *x = t.x.get(TOKENS * s.d), *gu = t.gate_up.get(TOKENS * 2 * s.ff + TOKENS * s.qkv());
  bf16 *h = t.hb.get(TOKENS * s.d), *act = t.act.get(TOKENS * s.ff);
  std::memcpy(x, whole(at.x.p + begin * s.d, count, s.d, TOKENS, t.product), TOKENS * s.d * sizeof(float));
  product(TOKENS, s.d, s.heads(), whole(at.o.p + begin * s.heads(), count, s.heads(), TOKENS, t.one), s.heads(), w.o.p, x, true);
  std::memcpy(at.middle.p + begin * s.d, x, count * s.d * sizeof(float));
  norm(s, x, w.n2, h);
  product(TOKENS, 2 * s.ff, s.d, h, s.d, w.gu.p, gu, false);
  for (int64_t i = 0; i < TOKENS; i++)
    for (int64_t j = 0; j < s.ff; j += 16) {
      vec g = load(gu + i * 2 * s.ff + j), u = load(gu + i * 2 * s.ff + s.ff + j);
      store(act + i * s.ff + j, _mm512_mul_ps(_mm512_mul_ps(g, sigmoid(g)), u));
    }
  product(TOKENS, s.d, s.ff, act, s.ff, w.w.p, x, true);
}

// Attention. Scores are transposed, [keys, queries], so that a vector is of 16 queries and
// nothing is summed across one; the query heads of a KV head are more queries.

// The rows of one head, [blocks · 64, 32] with zeros below.
void gather(const Shape& s, const bf16* x, int64_t ld, int64_t begin, int64_t rows, bf16* out) {
  for (int64_t i = 0; i < rows; i++)
    store(out + i * DH, begin + i < s.columns ? _mm512_loadu_si512(x + (begin + i) * ld) : _mm512_setzero_si512());
}

// The queries (or gradients) of block b and all heads of a group, [group · 64, 32].
void gather_group(const Shape& s, const bf16* x, int64_t ld, int64_t b, bf16* out) {
  for (int64_t g = 0; g < s.nh / s.nkv; g++) gather(s, x + g * DH, ld, b * BLOCK, BLOCK, out + g * BLOCK * DH);
}

// Which of 16 queries from column j see key i, both in blocks of the same number.
__mmask16 sees(int64_t j, int64_t i) {
  int64_t hidden = i - j % BLOCK; // this many of the queries are before the key
  return hidden <= 0 ? 0xffff : hidden >= 16 ? 0 : (__mmask16)(0xffff << hidden);
}

void attention(const Shape& s, Saved& at, Thread& t, int64_t row, int64_t head) {
  int64_t group = s.nh / s.nkv, n = group * BLOCK, blocks = s.blocks(), ld = s.qkv();
  float scale = LOG2E / std::sqrt((float)DH);
  const bf16* base = at.qkv.p + row * s.columns * ld;
  bf16 *k = t.k.get(blocks * BLOCK * DH), *v = t.v.get(blocks * BLOCK * DH), *vt = t.vt.get(blocks * BLOCK * DH);
  bf16 *q = t.q.get(n * DH), *qt = t.qt.get(n * DH), *p = t.p.get(BLOCK * n);
  float *scores = t.scores.get(BLOCK * n), *o = t.acc.get(DH * n), *most = t.dscores.get(2 * n), *sum = most + n;
  gather(s, base + (s.nh + head) * DH, ld, 0, blocks * BLOCK, k);
  gather(s, base + (s.nh + s.nkv + head) * DH, ld, 0, blocks * BLOCK, v);
  for (int64_t b = 0; b < blocks; b++) transposed(v + b * BLOCK * DH, DH, BLOCK, DH, vt + b * BLOCK * DH);
  for (int64_t qb = 0; qb < blocks; qb++) {
    gather_group(s, base + head * group * DH, ld, qb, q);
    paired_transpose(q, DH, n, DH, qt, n);
    for (int64_t j = 0; j < n; j++) most[j] = -1e30f, sum[j] = 0;
    for (int64_t kb = 0; kb <= qb; kb++) {
      product(BLOCK, n, DH, k + kb * BLOCK * DH, DH, qt, scores, false);
      for (int64_t j = 0; j < n; j += 16) {
        auto mask = [&](int64_t i) { return kb == qb ? sees(j, i) : (__mmask16)0xffff; };
        vec old = load(most + j), top = old;
        for (int64_t i = 0; i < BLOCK; i++) {
          vec x = _mm512_mul_ps(load(scores + i * n + j), splat(scale));
          top = _mm512_mask_max_ps(top, mask(i), top, x);
        }
        vec total = load(sum + j);
        if (_mm512_cmpneq_ps_mask(old, top)) {
          vec shrink = exp2(_mm512_sub_ps(old, top));
          total = _mm512_mul_ps(total, shrink);
          store(most + j, top);
          if (kb > 0)
            for (int64_t i = 0; i < DH; i++) store(o + i * n + j, _mm512_mul_ps(load(o + i * n + j), shrink));
        }
        for (int64_t i = 0; i < BLOCK; i += 2) {
          vec a = _mm512_maskz_mov_ps(mask(i), exp2(_mm512_fmsub_ps(load(scores + i * n + j), splat(scale), top)));
          vec b = _mm512_maskz_mov_ps(mask(i + 1), exp2(_mm512_fmsub_ps(load(scores + (i + 1) * n + j), splat(scale), top)));
          total = _mm512_add_ps(total, _mm512_add_ps(a, b));
          store(p + i * n + 2 * j, interleave(narrow(a, b)));
        }
        store(sum + j, total);
      }
      product(DH, n, BLOCK, vt + kb * BLOCK * DH, BLOCK, p, o, kb > 0);
    }
    float* sums = at.sums.p + ((row * s.nkv + head) * blocks + qb) * n;
    for (int64_t j = 0; j < n; j++) sums[j] = most[j] + std::log2(sum[j]);
    for (int64_t j = 0; j < n; j += 16) {
      vec a[16], b[16], inverse = _mm512_div_ps(splat(1), load(sum + j));
      columns16(o + j, n, inverse, a);
      columns16(o + 16 * n + j, n, inverse, b);
      int64_t at_query = qb * BLOCK + j % BLOCK;
      bf16* out = at.o.p + (row * s.columns + at_query) * s.heads() + (head * group + j / BLOCK) * DH;
      for (int64_t i = 0; i < std::min<int64_t>(16, s.columns - at_query); i++) store(out + i * s.heads(), narrow(a[i], b[i]));
    }
  }
}
