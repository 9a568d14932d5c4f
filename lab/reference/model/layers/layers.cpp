// The layers of network.py forward and backward, for processors with products of bfloat16
// (AVX-512). Products are in bfloat16 with float32 sums, with AMX through oneDNN's small
// products; all else is in float32.
//
// A block of tokens goes through everything between two attentions while it is in the
// cache, and the backward pass computes again what is not saved: the residual stream, the
// rotated queries, keys and values, the outputs of attention and its logarithms of sums.
//
// A right operand is "paired": rows 2i and 2i+1 of a matrix [rows, columns] lie
// interleaved at [rows/2][columns][2], as AMX wants them.

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/empty_like.h>
#include <immintrin.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace {

using at::Tensor;
using bf16 = at::BFloat16;
using vec = __m512;
using std::vector;

constexpr int64_t DH = 32;      // size of a head: the two vectors that rotate
constexpr int64_t TOKENS = 128; // of a block between two attentions
constexpr int64_t BLOCK = 64;   // queries or keys of a block in attention
constexpr float LOG2E = 1.44269504f;

#include "vectors.h"

// Memory.

// Zeroed memory, aligned to cache lines, that is kept for the next call.
template <typename X> struct Buffer {
  X* p = nullptr;
  int64_t size = 0;
  X* get(int64_t n) {
    if (n > size) {
      std::free(p);
      size = (n + 63) / 64 * 64;
      p = (X*)std::aligned_alloc(64, size * sizeof(X));
      std::memset((void*)p, 0, size * sizeof(X));
    }
    return p;
  }
  ~Buffer() { std::free(p); }
};

struct Shape {
  int64_t d, nh, nkv, ff, layers, rows, columns;
  float eps;
  int64_t heads() const { return nh * DH; }
  int64_t qkv() const { return (nh + 2 * nkv) * DH; }
  int64_t tokens() const { return rows * columns; }
  int64_t blocks() const { return (columns + BLOCK - 1) / BLOCK; }
};

// Weights of a layer as right operands: forward the transposes, backward as they are.
struct Weights {
  Buffer<bf16> qkv, o, gu, w, qkv_back, o_back, gu_back, w_back;
  const float *n1, *n2;
};
enum { Q, K, V, O, G, U, W, N1, N2, NAMES };

// What forward saves of a layer for backward.
struct Saved {
  Buffer<float> x, middle, sums; // [tokens, d] before attention and before the feed-forward; [rows, kv heads, blocks, group · 64]
  Buffer<bf16> qkv, o;           // [tokens, qkv], [tokens, heads]
};

// Sums over the tokens of a thread, and what it needs for a block.
struct Thread {
  Buffer<float> d_qkv, d_o, d_gu, d_w, d_n1, d_n2;
  Buffer<float> x, h, gate_up, dx, da, product, dk, dv, scores, dscores, acc;
  Buffer<bf16> hb, ht, act, act_pairs, db, dt, gu, gu_pairs, small, small_pairs;
  Buffer<bf16> k, v, kt, vt, q, qt, dot, q_pairs, do_pairs, p, ds, ds_pairs, one;
};

vector<Weights> weights;
vector<Saved> saved;
vector<Thread> threads;
Buffer<bf16> all_do;     // [tokens, heads]
Buffer<float> all_dqkv;  // [tokens, qkv]
int64_t generation = 0;  // of what is saved

template <typename F> void parallel(const F& f) {
  int64_t n = threads.size();
  at::parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) f(t);
    if (has_amx) at::native::cpublas::brgemm_release();
  });
}

// Calls f(begin, count) for the blocks of a thread. Each thread always has the same ones.
template <typename F> void token_blocks(const Shape& s, int64_t t, const F& f) {
  int64_t blocks = (s.tokens() + TOKENS - 1) / TOKENS, n = threads.size();
  for (int64_t b = blocks * t / n; b < blocks * (t + 1) / n; b++) f(b * TOKENS, std::min(TOKENS, s.tokens() - b * TOKENS));
}

// A whole block of what has count rows: as it is, or a copy with zeros below.
template <typename X> const X* whole(const X* x, int64_t count, int64_t columns, int64_t rows, Buffer<X>& copy) {
  if (count == rows) return x;
  X* p = copy.get(rows * columns);
  std::memcpy((void*)p, x, count * columns * sizeof(X));
  std::memset((void*)(p + count * columns), 0, (rows - count) * columns * sizeof(X));
  return p;
}

#include "forward.h"
#include "backward.h"
#include "optimizer.h"

// Calls f(row, KV head) for those of a thread.
template <typename F> void heads_of(const Shape& s, int64_t t, const F& f) {
  int64_t items = s.rows * s.nkv, n = threads.size();
  for (int64_t i = items * t / n; i < items * (t + 1) / n; i++) f(i / s.nkv, i % s.nkv);
}

Shape shape(int64_t nh, int64_t nkv, double eps, int64_t rows, const Tensor& x, at::TensorList p) {
  Shape s{x.size(1), nh, nkv, p[G].size(0), (int64_t)p.size() / NAMES, rows, x.size(0) / rows, (float)eps};
  TORCH_CHECK(s.d % 32 == 0 && s.ff % 32 == 0 && p[Q].size(0) == s.heads() && x.scalar_type() == at::kFloat && x.is_contiguous(),
              "layers: hidden size ", s.d, ", feed-forward size ", s.ff, ", ", p[Q].size(0), " query channels: want multiples of 32 and heads of 32");
  return s;
}

void pack(const Shape& s, at::TensorList p) {
  weights.resize(s.layers);
  threads.resize(at::get_num_threads());
  for (const Tensor& t : p) TORCH_CHECK(t.is_contiguous() && t.scalar_type() == at::kFloat, "layers: weights must be contiguous float32");
  parallel([&](int64_t t) {
    for (int64_t l = t; l < s.layers; l += threads.size()) {
      Weights& w = weights[l];
      auto of = [&](int name) { return p[l * NAMES + name].const_data_ptr<float>(); };
      int64_t d = s.d, kv = s.nkv * DH, n = s.qkv();
      bf16 *qkv = w.qkv.get(n * d), *qkv_back = w.qkv_back.get(n * d), *gu = w.gu.get(2 * s.ff * d), *gu_back = w.gu_back.get(2 * s.ff * d);
      int64_t at = 0;
      for (auto [name, rows] : {std::pair(Q, s.heads()), std::pair(K, kv), std::pair(V, kv)}) {
        paired_transpose(of(name), d, rows, d, qkv + 2 * at, n);
        paired(of(name), d, rows, d, qkv_back + at * d);
        at += rows;
      }
      at = 0;
      for (int name : {G, U}) {
        paired_transpose(of(name), d, s.ff, d, gu + 2 * at, 2 * s.ff);
        paired(of(name), d, s.ff, d, gu_back + at * d);
        at += s.ff;
      }
      paired_transpose(of(O), s.heads(), d, s.heads(), w.o.get(d * s.heads()), d);
      paired(of(O), s.heads(), d, s.heads(), w.o_back.get(d * s.heads()));
      paired_transpose(of(W), s.ff, d, s.ff, w.w.get(d * s.ff), d);
      paired(of(W), s.ff, d, s.ff, w.w_back.get(d * s.ff));
      w.n1 = of(N1), w.n2 = of(N2);
    }
  });
}

// Hidden states [tokens, d] of embeddings x [tokens, d], and the number under which what
// backward needs is saved (one layer's is overwritten by the next if keep is false).
std::tuple<Tensor, int64_t> forward(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t rows, int64_t nh, int64_t nkv, double eps, bool keep, at::TensorList p) {
  Shape s = shape(nh, nkv, eps, rows, x, p);
  pack(s, p);
  int64_t slots = keep ? s.layers : 1;
  if ((int64_t)saved.size() < slots) saved.resize(slots);
  for (int64_t l = 0; l < slots; l++) {
    saved[l].x.get(s.tokens() * s.d), saved[l].middle.get(s.tokens() * s.d), saved[l].o.get(s.tokens() * s.heads());
    saved[l].qkv.get(s.tokens() * s.qkv()), saved[l].sums.get(s.rows * s.nh * s.blocks() * BLOCK);
  }
  Tensor out = at::empty_like(x);
  const float *from = x.const_data_ptr<float>(), *c = cos.const_data_ptr<float>(), *v = sin.const_data_ptr<float>();
  parallel([&](int64_t t) {
    token_blocks(s, t, [&](int64_t begin, int64_t count) {
      std::memcpy(saved[0].x.p + begin * s.d, from + begin * s.d, count * s.d * sizeof(float));
      project_qkv(s, weights[0], saved[0], threads[t], whole(from + begin * s.d, count, s.d, TOKENS, threads[t].x), begin, count, c, v);
    });
  });
  for (int64_t l = 0; l < s.layers; l++) {
    Saved &at = saved[l % slots], &next = saved[(l + 1) % slots];
    parallel([&](int64_t t) { heads_of(s, t, [&](int64_t row, int64_t head) { attention(s, at, threads[t], row, head); }); });
    bool last = l == s.layers - 1;
    float* to = last ? out.mutable_data_ptr<float>() : next.x.p;
    parallel([&](int64_t t) {
      token_blocks(s, t, [&](int64_t begin, int64_t count) {
        feed_forward(s, weights[l], at, threads[t], begin, count);
        std::memcpy(to + begin * s.d, threads[t].x.p, count * s.d * sizeof(float));
        if (!last) project_qkv(s, weights[l + 1], next, threads[t], threads[t].x.p, begin, count, c, v);
      });
    });
  }
  return {out, ++generation};
}

// Gradients of x and of the weights, in their order, of a gradient of the hidden states.
vector<Tensor> backward(const Tensor& gradient, const Tensor& cos, const Tensor& sin, int64_t rows, int64_t nh, int64_t nkv, double eps, int64_t number, at::TensorList p) {
  Shape s = shape(nh, nkv, eps, rows, gradient, p);
  TORCH_CHECK(number == generation, "layers: backward of forward ", number, " after forward ", generation, ", which overwrote what it saved");
  Tensor dx = gradient.clone();
  vector<Tensor> out{dx};
  for (const Tensor& t : p) out.push_back(at::empty_like(t));
  bf16* d_o = all_do.get(s.tokens() * s.heads());
  float *dqkv = all_dqkv.get(s.tokens() * s.qkv()), *g = dx.mutable_data_ptr<float>();
  const float *c = cos.const_data_ptr<float>(), *v = sin.const_data_ptr<float>();
  for (int64_t l = s.layers - 1; l >= 0; l--) {
    parallel([&](int64_t t) {
      clear_sums(s, threads[t]);
      token_blocks(s, t, [&](int64_t begin, int64_t count) { feed_forward_backward(s, weights[l], saved[l], threads[t], g, d_o, begin, count); });
    });
    parallel([&](int64_t t) { heads_of(s, t, [&](int64_t row, int64_t head) { attention_backward(s, saved[l], threads[t], row, head, d_o, dqkv); }); });
    parallel([&](int64_t t) {
      token_blocks(s, t, [&](int64_t begin, int64_t count) { project_qkv_backward(s, weights[l], saved[l], threads[t], g, dqkv, begin, count, c, v); });
    });
    vector<float*> to;
    for (int name = 0; name < NAMES; name++) to.push_back(out[1 + l * NAMES + name].mutable_data_ptr<float>());
    parallel([&](int64_t t) { add_threads(s, t, to); });
  }
  return out;
}

} // namespace

TORCH_LIBRARY(reference_model, m) {
  m.def("forward(Tensor x, Tensor cos, Tensor sin, int rows, int nh, int nkv, float eps, bool keep, Tensor[] p) -> (Tensor, int)", forward);
  m.def("backward(Tensor gradient, Tensor cos, Tensor sin, int rows, int nh, int nkv, float eps, int number, Tensor[] p) -> Tensor[]", backward);
  m.def("clip(Tensor(a!)[] gradients, float most) -> float", clip);
  m.def("muon(Tensor(a!)[] p, Tensor[] gradients, Tensor(b!)[] momenta, float rate, float momentum, float decay) -> ()", muon);
}
