// The backward pass: blocks of tokens, attention, and sums over threads. A part of layers.cpp.

void clear_sums(const Shape& s, Thread& t) {
  auto zero = [](Buffer<float>& b, int64_t n) { std::memset(b.get(n), 0, n * sizeof(float)); };
  zero(t.d_qkv, s.d * s.qkv()), zero(t.d_o, s.d * s.heads()), zero(t.d_gu, s.d * 2 * s.ff), zero(t.d_w, s.d * s.ff);
  zero(t.d_n1, s.d), zero(t.d_n2, s.d);
}

void round_to(const float* x, int64_t n, bf16* out) {
  for (int64_t i = 0; i < n; i += 32) store(out + i, load32(x + i));
}

// A gradient dx of a block as it comes in and leaves: the residual stream's g [tokens, d].
float* load_gradient(const Shape& s, Thread& t, const float* g, int64_t begin, int64_t count) {
  float* dx = t.dx.get(TOKENS * s.d);
  std::memcpy(dx, g + begin * s.d, count * s.d * sizeof(float));
  std::memset(dx + count * s.d, 0, (TOKENS - count) * s.d * sizeof(float));
  return dx;
}

// Updates g through the feed-forward and writes the gradient of attention's outputs.
void feed_forward_backward(const Shape& s, const Weights& w, const Saved& at, Thread& t, float* g, bf16* d_o, int64_t begin, int64_t count) {
  int64_t d = s.d, ff = s.ff, heads = s.heads();
  float *dx = load_gradient(s, t, g, begin, count), *gu = t.gate_up.get(TOKENS * 2 * ff + TOKENS * s.qkv()), *da = t.da.get(TOKENS * ff);
  float* dh = t.h.get(TOKENS * std::max(d, heads));
  bf16 *h = t.hb.get(TOKENS * d), *ht = t.ht.get(TOKENS * d), *db = t.db.get(TOKENS * d), *dt = t.dt.get(TOKENS * d);
  bf16 *act = t.act_pairs.get(TOKENS * ff), *dgu = t.gu.get(TOKENS * 2 * ff), *dgu_pairs = t.gu_pairs.get(TOKENS * 2 * ff);
  const float* x = whole(at.middle.p + begin * d, count, d, TOKENS, t.x);
  norm(s, x, w.n2, h);
  transposed(h, d, TOKENS, d, ht);
  product(TOKENS, 2 * ff, d, h, d, w.gu.p, gu, false);
  round_to(dx, TOKENS * d, db);
  transposed(db, d, TOKENS, d, dt);
  product(TOKENS, ff, d, db, d, w.w_back.p, da, false);
  for (int64_t i = 0; i < TOKENS; i += 2)
    for (int64_t j = 0; j < ff; j += 16) {
      vec a[2], dg[2], du[2];
      for (int k = 0; k < 2; k++) {
        const float* y = gu + (i + k) * 2 * ff + j;
        vec gate = load(y), up = load(y + ff), dy = load(da + (i + k) * ff + j), sg = sigmoid(gate), silu = _mm512_mul_ps(gate, sg);
        a[k] = _mm512_mul_ps(silu, up);
        du[k] = _mm512_mul_ps(dy, silu);
        // The derivative of silu is sg · (1 + gate · (1 - sg)) = sg + silu · (1 - sg).
        dg[k] = _mm512_mul_ps(_mm512_mul_ps(dy, up), _mm512_fmadd_ps(silu, _mm512_sub_ps(splat(1), sg), sg));
        store(dgu + (i + k) * 2 * ff + j, dg[k]);
        store(dgu + (i + k) * 2 * ff + ff + j, du[k]);
      }
      store(act + i * ff + 2 * j, interleave(narrow(a[0], a[1])));
      store(dgu_pairs + i * 2 * ff + 2 * j, interleave(narrow(dg[0], dg[1])));
      store(dgu_pairs + i * 2 * ff + 2 * (ff + j), interleave(narrow(du[0], du[1])));
    }
  product(TOKENS, d, 2 * ff, dgu, 2 * ff, w.gu_back.p, dh, false);
  product(d, ff, TOKENS, dt, TOKENS, act, t.d_w.p, true);
  product(d, 2 * ff, TOKENS, ht, TOKENS, dgu_pairs, t.d_gu.p, true);
  norm_backward(s, x, w.n2, dh, dx, t.d_n2.p);
  std::memcpy(g + begin * d, dx, count * d * sizeof(float));

  round_to(dx, TOKENS * d, db);
  transposed(db, d, TOKENS, d, dt);
  product(TOKENS, heads, d, db, d, w.o_back.p, dh, false);
  round_to(dh, count * heads, d_o + begin * heads);
  bf16* o = t.small_pairs.get(TOKENS * std::max(heads, s.qkv()));
  paired(whole(at.o.p + begin * heads, count, heads, TOKENS, t.one), heads, TOKENS, heads, o);
  product(d, heads, TOKENS, dt, TOKENS, o, t.d_o.p, true);
}

// Updates g through the projections of the gradients dqkv of rotated queries and keys, and
// of values.
void project_qkv_backward(const Shape& s, const Weights& w, const Saved& at, Thread& t, float* g, const float* dqkv, int64_t begin, int64_t count, const float* cos, const float* sin) {
  int64_t d = s.d, n = s.qkv();
  float *dx = load_gradient(s, t, g, begin, count), *dh = t.h.get(TOKENS * d);
  bf16 *h = t.hb.get(TOKENS * d), *ht = t.ht.get(TOKENS * d), *dy = t.small.get(TOKENS * n), *pairs = t.small_pairs.get(TOKENS * n);
  for (int64_t i = 0; i < TOKENS; i++) {
    const float* from = dqkv + (begin + i) * n;
    if (i >= count) {
      std::memset((void*)(dy + i * n), 0, n * sizeof(bf16));
      continue;
    }
    vec c = load(cos + (begin + i) % s.columns * 16), v = load(sin + (begin + i) % s.columns * 16);
    for (int64_t j = 0; j < n; j += DH) {
      vec a = load(from + j), b = load(from + j + 16);
      bool rotates = j < (s.nh + s.nkv) * DH;
      vec first = rotates ? _mm512_fmadd_ps(a, c, _mm512_mul_ps(b, v)) : a, second = rotates ? _mm512_fmsub_ps(b, c, _mm512_mul_ps(a, v)) : b;
      store(dy + i * n + j, narrow(first, second));
    }
  }
  const float* x = whole(at.x.p + begin * d, count, d, TOKENS, t.x);
  norm(s, x, w.n1, h);
  transposed(h, d, TOKENS, d, ht);
  paired(dy, n, TOKENS, n, pairs);
  product(TOKENS, d, n, dy, n, w.qkv_back.p, dh, false);
  product(d, n, TOKENS, ht, TOKENS, pairs, t.d_qkv.p, true);
  norm_backward(s, x, w.n1, dh, dx, t.d_n1.p);
  std::memcpy(g + begin * d, dx, count * d * sizeof(float));
}

// The gradients of the queries, keys and values of a KV head and its group in one row, as
// in FlashAttention-2 (Dao 2023, arXiv:2307.08691, algorithm 2), with scores transposed.
void attention_backward(const Shape& s, const Saved& at, Thread& t, int64_t row, int64_t head, const bf16* d_o, float* dqkv) {
  int64_t group = s.nh / s.nkv, n = group * BLOCK, blocks = s.blocks(), ld = s.qkv(), heads = s.heads();
  float scale = 1 / std::sqrt((float)DH);
  const bf16 *base = at.qkv.p + row * s.columns * ld, *o_base = at.o.p + row * s.columns * heads + head * group * DH;
  const bf16* do_base = d_o + row * s.columns * heads + head * group * DH;
  float* out = dqkv + row * s.columns * ld;
  int64_t whole_size = blocks * BLOCK * DH;
  bf16 *k = t.k.get(whole_size), *v = t.v.get(whole_size), *kt = t.kt.get(whole_size);
  float *dk = t.dk.get(whole_size), *dv = t.dv.get(whole_size);
  bf16 *q = t.q.get(n * DH), *dy = t.one.get(std::max(n * DH, TOKENS * heads)), *qt = t.qt.get(n * DH), *dyt = t.dot.get(n * DH);
  bf16 *q_pairs = t.q_pairs.get(n * DH), *dy_pairs = t.do_pairs.get(n * DH);
  bf16 *p = t.p.get(BLOCK * n), *ds = t.ds.get(BLOCK * n), *ds_pairs = t.ds_pairs.get(BLOCK * n);
  float *scores = t.scores.get(BLOCK * n), *dp = t.dscores.get(BLOCK * n), *dq = t.acc.get(DH * n), *delta = t.da.get(n);
  gather(s, base + (s.nh + head) * DH, ld, 0, blocks * BLOCK, k);
  gather(s, base + (s.nh + s.nkv + head) * DH, ld, 0, blocks * BLOCK, v);
  for (int64_t b = 0; b < blocks; b++) transposed(k + b * BLOCK * DH, DH, BLOCK, DH, kt + b * BLOCK * DH);
  std::memset(dk, 0, whole_size * sizeof(float));
  std::memset(dv, 0, whole_size * sizeof(float));
  for (int64_t qb = 0; qb < blocks; qb++) {
    gather_group(s, o_base, heads, qb, q);
    gather_group(s, do_base, heads, qb, dy);
    for (int64_t j = 0; j < n; j++) delta[j] = _mm512_reduce_add_ps(_mm512_dpbf16_ps(splat(0), (__m512bh)load32(q + j * DH), (__m512bh)load32(dy + j * DH)));
    gather_group(s, base + head * group * DH, ld, qb, q);
    paired_transpose(q, DH, n, DH, qt, n);
    paired_transpose(dy, DH, n, DH, dyt, n);
    paired(q, DH, n, DH, q_pairs);
    paired(dy, DH, n, DH, dy_pairs);
    const float* sums = at.sums.p + ((row * s.nkv + head) * blocks + qb) * n;
    for (int64_t kb = 0; kb <= qb; kb++) {
      product(BLOCK, n, DH, k + kb * BLOCK * DH, DH, qt, scores, false);
      product(BLOCK, n, DH, v + kb * BLOCK * DH, DH, dyt, dp, false);
      for (int64_t j = 0; j < n; j += 16) {
        vec sum = load(sums + j), dot = load(delta + j);
        for (int64_t i = 0; i < BLOCK; i += 2) {
          vec a[2], b[2];
          for (int r = 0; r < 2; r++) {
            __mmask16 mask = kb == qb ? sees(j, i + r) : 0xffff;
            a[r] = _mm512_maskz_mov_ps(mask, exp2(_mm512_fmsub_ps(load(scores + (i + r) * n + j), splat(scale * LOG2E), sum)));
            b[r] = _mm512_mul_ps(a[r], _mm512_sub_ps(load(dp + (i + r) * n + j), dot));
            store(p + (i + r) * n + j, a[r]);
            store(ds + (i + r) * n + j, b[r]);
          }
          store(ds_pairs + i * n + 2 * j, interleave(narrow(b[0], b[1])));
        }
      }
      product(BLOCK, DH, n, p, n, dy_pairs, dv + kb * BLOCK * DH, true);
      product(BLOCK, DH, n, ds, n, q_pairs, dk + kb * BLOCK * DH, true);
      product(DH, n, BLOCK, kt + kb * BLOCK * DH, BLOCK, ds_pairs, dq, kb > 0);
    }
    for (int64_t j = 0; j < n; j += 16) {
      vec a[16], b[16];
      columns16(dq + j, n, splat(scale), a);
      columns16(dq + 16 * n + j, n, splat(scale), b);
      int64_t at_query = qb * BLOCK + j % BLOCK;
      float* to = out + at_query * ld + (head * group + j / BLOCK) * DH;
      for (int64_t i = 0; i < std::min<int64_t>(16, s.columns - at_query); i++) store(to + i * ld, a[i]), store(to + i * ld + 16, b[i]);
    }
  }
  for (int64_t i = 0; i < s.columns; i++)
    for (int64_t j = 0; j < DH; j += 16) {
      store(out + i * ld + (s.nh + head) * DH + j, _mm512_mul_ps(load(dk + i * DH + j), splat(scale)));
      store(out + i * ld + (s.nh + s.nkv + head) * DH + j, load(dv + i * DH + j));
    }
}

// to [columns of the part, rows] = the transposed sum over threads of a part of their
// [rows, stride], or to [rows, stride] = their sum. A thread does its share of the rows.
void add_threads(const Shape& s, int64_t thread, const vector<float*>& to) {
  auto sum = [&](Buffer<float> Thread::*of, int64_t i) {
    vec x = load((threads[0].*of).p + i);
    for (size_t t = 1; t < threads.size(); t++) x = _mm512_add_ps(x, load((threads[t].*of).p + i));
    return x;
  };
  auto plain = [&](Buffer<float> Thread::*of, float* out, int64_t size) {
    int64_t n = threads.size(), chunks = size / 16;
    for (int64_t i = chunks * thread / n; i < chunks * (thread + 1) / n; i++) store(out + i * 16, sum(of, i * 16));
  };
  auto turned = [&](Buffer<float> Thread::*of, float* out, int64_t stride, int64_t begin, int64_t columns) {
    int64_t n = threads.size(), tiles = columns / 16;
    __m512i r[16];
    for (int64_t c = tiles * thread / n * 16; c < tiles * (thread + 1) / n * 16; c += 16)
      for (int64_t i = 0; i < s.d; i += 16) {
        for (int k = 0; k < 16; k++) r[k] = _mm512_castps_si512(sum(of, (i + k) * stride + begin + c));
        transpose16(r);
        for (int k = 0; k < 16; k++) store(out + (c + k) * s.d + i, r[k]);
      }
  };
  int64_t heads = s.heads(), kv = s.nkv * DH;
  turned(&Thread::d_qkv, to[Q], s.qkv(), 0, heads);
  turned(&Thread::d_qkv, to[K], s.qkv(), heads, kv);
  turned(&Thread::d_qkv, to[V], s.qkv(), heads + kv, kv);
  turned(&Thread::d_gu, to[G], 2 * s.ff, 0, s.ff);
  turned(&Thread::d_gu, to[U], 2 * s.ff, s.ff, s.ff);
  plain(&Thread::d_o, to[O], s.d * heads);
  plain(&Thread::d_w, to[W], s.d * s.ff);
  plain(&Thread::d_n1, to[N1], s.d);
  plain(&Thread::d_n2, to[N2], s.d);
}
