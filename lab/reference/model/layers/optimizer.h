// Muon and the clipping of gradients, without a wait of all threads after every operation.
// A part of layers.cpp.

// Calls f(i) for the tensors of a thread: of what is sorted by size, every n-th.
template <typename F> void tensors_of(at::TensorList p, const F& f) {
  vector<int64_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return p[a].numel() > p[b].numel(); });
  parallel([&](int64_t t) {
    for (size_t i = t; i < order.size(); i += threads.size()) f(t, order[i]);
  });
}

// Scales gradients so that the norm of all of them is at most `most`, and returns what it was.
double clip(at::TensorList gradients, double most) {
  threads.resize(at::get_num_threads());
  for (const Tensor& g : gradients) TORCH_CHECK(g.is_contiguous() && g.scalar_type() == at::kFloat, "clip: gradients must be contiguous float32");
  vector<double> squares(gradients.size());
  tensors_of(gradients, [&](int64_t, int64_t i) {
    const float* g = gradients[i].const_data_ptr<float>();
    int64_t n = gradients[i].numel(), j = 0;
    vec sum = splat(0);
    for (; j + 16 <= n; j += 16) sum = _mm512_fmadd_ps(load(g + j), load(g + j), sum);
    squares[i] = _mm512_reduce_add_ps(sum);
    for (; j < n; j++) squares[i] += g[j] * g[j];
  });
  double norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  float scale = most / (norm + 1e-6);
  if (!(scale >= 1)) // also what is not a number
    tensors_of(gradients, [&](int64_t, int64_t i) {
      float* g = gradients[i].mutable_data_ptr<float>();
      for (int64_t j = 0; j < gradients[i].numel(); j++) g[j] *= scale;
    });
  return norm;
}

// out = x + factor · y, over n entries.
void combine(const float* x, float factor, const float* y, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) store(out + i, _mm512_fmadd_ps(splat(factor), load(y + i), load(x + i)));
}

// muon.py's Newton-Schulz steps on x [rows, columns], rows <= columns, in float32 with
// operands of products in bfloat16.
void orthogonal(float* x, int64_t rows, int64_t columns, Thread& t) {
  int64_t n = rows * columns, square = rows * rows;
  bf16 *xb = t.gu.get(n), *x_pairs = t.gu_pairs.get(n), *ab = t.db.get(square), *a_pairs = t.dt.get(square);
  float *a = t.h.get(square), *aa = t.dx.get(square), *ax = t.gate_up.get(n);
  vec sum = splat(0);
  for (int64_t i = 0; i < n; i += 16) sum = _mm512_fmadd_ps(load(x + i), load(x + i), sum);
  float scale = 1 / (std::sqrt(_mm512_reduce_add_ps(sum)) + 1e-7f);
  for (int64_t i = 0; i < n; i++) x[i] *= scale;
  for (int step = 0; step < 5; step++) {
    round_to(x, n, xb);
    paired_transpose(x, columns, rows, columns, x_pairs, rows);
    product(rows, rows, columns, xb, columns, x_pairs, a, false);
    round_to(a, square, ab);
    paired(a, rows, rows, rows, a_pairs);
    product(rows, rows, rows, ab, rows, a_pairs, aa, false);
    for (int64_t i = 0; i < square; i += 16) store(a + i, _mm512_fmadd_ps(splat(2.0315f), load(aa + i), _mm512_mul_ps(splat(-4.7750f), load(a + i))));
    round_to(a, square, ab);
    paired(x, columns, rows, columns, x_pairs);
    product(rows, columns, rows, ab, rows, x_pairs, ax, false);
    combine(ax, 3.4445f, x, n, x);
  }
}

// One step of muon.py.
void muon(at::TensorList p, at::TensorList gradients, at::TensorList momenta, double rate, double momentum, double decay) {
  threads.resize(at::get_num_threads());
  for (size_t i = 0; i < p.size(); i++) {
    TORCH_CHECK(p[i].dim() == 2 && p[i].size(0) % 32 == 0 && p[i].size(1) % 32 == 0, "muon: matrix ", p[i].sizes(), ", want multiples of 32");
    for (const Tensor& t : {p[i], gradients[i], momenta[i]})
      TORCH_CHECK(t.is_contiguous() && t.scalar_type() == at::kFloat && t.sizes() == p[i].sizes(), "muon: a weight, its gradient and its momentum must be contiguous float32 of one shape");
  }
  tensors_of(p, [&](int64_t thread, int64_t index) {
    Thread& t = threads[thread];
    float *w = p[index].mutable_data_ptr<float>(), *m = momenta[index].mutable_data_ptr<float>();
    const float* g = gradients[index].const_data_ptr<float>();
    int64_t rows = p[index].size(0), columns = p[index].size(1), n = rows * columns;
    float *update = t.x.get(n), *turned = t.da.get(n);
    for (int64_t i = 0; i < n; i += 16) store(m + i, _mm512_fmadd_ps(splat(momentum), load(m + i), load(g + i)));
    combine(g, momentum, m, n, update);
    if (rows > columns) {
      turn(update, rows, columns, turned);
      orthogonal(turned, columns, rows, t);
      turn(turned, columns, rows, update);
    } else {
      orthogonal(update, rows, columns, t);
    }
    float share = rate * std::sqrt(std::max(1.0, (double)rows / columns)), kept = 1 - rate * decay;
    for (int64_t i = 0; i < n; i += 16) store(w + i, _mm512_fnmadd_ps(splat(share), load(update + i), _mm512_mul_ps(splat(kept), load(w + i))));
  });
}
