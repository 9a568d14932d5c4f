package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// derivative is the central difference of f by every element of x.
func derivative(x []float64, f func() float64) []float64 {
	const h = 1e-5
	out := make([]float64, len(x))
	for i, at := range x {
		x[i] = at + h
		up := f()
		x[i] = at - h
		out[i] = (up - f()) / (2 * h)
		x[i] = at
	}
	return out
}

// dot is Σ x·y.
func dot(x, y []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// TestAttentionGradIsTheDerivative holds AttentionGrad of the float64 reference
// against central differences of Σ dOut·out + Σ dLogScore·logScore.
func TestAttentionGradIsTheDerivative(t *testing.T) {
	d := open(t, "reference64")
	for _, s := range []attendShape{
		{name: "GQA", rows: 4, heads: 4, dim: 6, entries: []int{9, 9}, own: true},
		{name: "MHA, ragged", rows: 3, heads: 2, dim: 4, entries: []int{2, 11}, own: true, extraWidth: 2},
		{name: "MQA", rows: 5, heads: 3, dim: 2, entries: []int{7}, own: true},
		{name: "one past empty", rows: 4, heads: 2, dim: 4, entries: []int{0, 5}, own: true},
		{name: "no past", rows: 4, heads: 2, dim: 4, entries: []int{0}, own: true},
		{name: "one row", rows: 1, heads: 2, dim: 4, entries: []int{6}, own: true},
		{name: "window", rows: 4, heads: 4, dim: 4, entries: []int{9, 9}, own: true, window: 3},
		{name: "window, evicted", rows: 4, heads: 2, dim: 4, entries: []int{9, 3}, own: true, window: 8, evicted: true},
		{name: "sharp logits", rows: 4, heads: 2, dim: 4, entries: []int{8, 5}, own: true, logits: 6},
	} {
		for _, v := range []struct {
			name          string
			out, logScore bool
		}{{"dOut", true, false}, {"dLogScore", false, true}, {"both", true, true}} {
			rng := rand.New(rand.NewPCG(3, 5))
			a := s.attend(d, rng)
			dOut, dScore := s.gradients(d, rng, v.out, v.logScore)
			loss := func() float64 {
				out, _, scores := s.observe(d, a)
				sum := 0.0
				if dOut != nil {
					sum += dot(dOut.F64(), out.F64())
				}
				if dScore != nil {
					for i, g := range dScore.F64() {
						if g == g && !math.IsInf(scores.F64()[i], -1) { // a column that there is and that some row sees
							sum += g * scores.F64()[i]
						}
					}
				}
				return sum
			}
			own := map[string]*kernels.Tensor{"dq": a.Q, "dk": a.K, "dv": a.V}
			given := *a
			for _, got := range s.grad(d, &given, dOut, dScore) {
				want := derivative(own[got.name].F64(), loss)
				compare.Close(t, s.name+", "+v.name+": "+got.name, got.values, want, 1e-7, compare.Floor(max(1, magnitude(want))))
			}
		}
	}
}

// TestGradientsAreDerivatives holds the other gradients of the float64 reference
// against central differences.
func TestGradientsAreDerivatives(t *testing.T) {
	d := open(t, "reference64")
	rng := rand.New(rand.NewPCG(17, 19))
	const rows, width = 3, 5
	const n = rows * width
	draw := func(n int) *kernels.Tensor { return d.tensor(random(rng, n, 1), n/width, width) }
	x, z, dy, y := draw(n), draw(n), draw(n), draw(n)
	check := func(name string, got, by *kernels.Tensor, loss func() float64) {
		t.Helper()
		compare.Close(t, name, got.F64(), derivative(by.F64(), loss), 1e-7, compare.Floor(1))
	}

	w, dx := d.tensor(random(rng, width, 1), width), d.garbage(rows, width)
	d.b.RMSNormGrad(dx, x, w, dy, 0.1)
	check("RMSNormGrad", dx, x, func() float64 { d.b.RMSNorm(y, x, w, 0.1); return dot(dy.F64(), y.F64()) })

	bias := d.tensor(random(rng, width, 1), width)
	d.b.LayerNormGrad(dx, x, w, dy, 0.1)
	check("LayerNormGrad", dx, x, func() float64 { d.b.LayerNorm(y, x, w, bias, 0.1); return dot(dy.F64(), y.F64()) })

	d.b.GELUGrad(dx, x, dy)
	check("GELUGrad", dx, x, func() float64 { d.b.GELU(y, x); return dot(dy.F64(), y.F64()) })

	dGate, dUp := d.garbage(rows, width), d.garbage(rows, width)
	d.b.SiLUMulGrad(dGate, dUp, x, z, dy)
	act := func() float64 { d.b.SiLUMul(y, x, z); return dot(dy.F64(), y.F64()) }
	check("SiLUMulGrad of the gate", dGate, x, act)
	check("SiLUMulGrad of up", dUp, z, act)

	// y = 0.5 · x wᵀ: MatMul is the gradient of x and MatMulTA that of w.
	const out = 4
	weight, dOut, product := draw(out*width), d.tensor(random(rng, rows*out, 1), rows, out), d.garbage(rows, out)
	linear := func() float64 { d.b.Linear(product, x, weight, nil, 0.5, 0); return dot(dOut.F64(), product.F64()) }
	dX, dW := d.garbage(rows, width), d.garbage(out, width)
	d.b.MatMul(dX, dOut, weight, 0.5, 0)
	check("MatMul", dX, x, linear)
	d.b.MatMulTA(dW, dOut, x, 0.5, 0)
	check("MatMulTA", dW, weight, linear)

	targets := make([]float64, n)
	for i := range targets {
		targets[i] = math.Log(rng.Float64())
		if i >= n-width { // the last head attends to nothing
			targets[i] = math.Inf(-1)
		}
	}
	target := d.tensor(targets, rows, width)
	for name, loss := range map[string]func(l, g, s, t *kernels.Tensor, w float64){"ScoreKL": d.b.ScoreKL, "ScoreMSE": d.b.ScoreMSE} {
		grad, ignored := d.garbage(rows, width), d.garbage(rows, width)
		loss(d.tensor([]float64{0}), grad, x, target, 0.3)
		check(name, grad, x, func() float64 {
			l := kernels.FromF64([]float64{0})
			loss(l, ignored, x, target, 0.3)
			return l.F64()[0]
		})
	}
}

// TestScoreLossesByHand: two columns, worked out on paper. A divergence is that of the
// shares, which are the same however little a head attends.
func TestScoreLossesByHand(t *testing.T) {
	for _, name := range kernels.Backends.Names() {
		d := open(t, name)
		logs := d.tensor([]float64{math.Log(0.1), math.Log(0.3)}, 1, 2) // normalised ¼, ¾
		target, loss, grad := d.tensor([]float64{math.Log(0.2), math.Log(0.2)}, 1, 2), d.stored(kernels.F64, []float64{1}), d.garbage(1, 2)
		for _, shift := range []float64{0, 39, 41, 86, 90, 200, 1e4} {
			d.b.Fill(loss, 1)
			d.b.ScoreKL(loss, grad, logs, d.tensor([]float64{-1 - shift, -1 - shift}, 1, 2), 2)
			// 1 + 2·(½ log(½/¼) + ½ log(½/¾)); 2·(s − p)
			compare.Close(t, fmt.Sprintf("%s: KL of targets e^-%v", name, shift), loss.Float64s(), []float64{1 + math.Log(2) + math.Log(2.0/3)}, 1e-6)
			compare.Close(t, fmt.Sprintf("%s: gradient of KL of targets e^-%v", name, shift), grad.Float64s(), []float64{-0.5, 0.5}, 1e-6)
		}
		d.b.ScoreMSE(loss, grad, logs, target, 100)
		// 100 · (0.1² + 0.1²); 2·100·(s − t)·s
		compare.Close(t, name+": MSE", loss.Float64s(), []float64{1 + math.Log(2) + math.Log(2.0/3) + 2}, 1e-6)
		compare.Close(t, name+": gradient of MSE", grad.Float64s(), []float64{-2, 6}, 1e-6)
	}
}

// TestObservedScoresByDefinition: probabilities from an explicit softmax, of
// which rows are averaged, against the logarithms that the kernels give.
func TestObservedScoresByDefinition(t *testing.T) {
	for _, s := range append(randomShapes(8), attendShapes[:12]...) {
		for _, name := range kernels.Backends.Names() {
			d := open(t, name)
			a := s.attend(d, rand.New(rand.NewPCG(23, 29)))
			_, _, scores := s.observe(d, a)
			got, width, group := scores.Float64s(), scores.Width(), s.heads/len(s.entries)
			q := a.Q.Float64s()
			var own []float64
			if s.own {
				own = a.K.Float64s()
			}
			for h := range s.heads {
				g := h / group
				n, key := s.entries[g], a.Past[g].K.Float64s()
				want := make([]float64, width)
				for j := range want {
					want[j] = unwritten
				}
				mean := make([]float64, n)
				for r := range s.rows {
					query := q[(r*s.heads+h)*s.dim:][:s.dim]
					var e []float64
					past := n
					if !s.own {
						past -= s.rows - 1 - r
					}
					// sees tells whether a pair at position pos is inside the window.
					sees := func(pos int32) float64 {
						if s.window > 0 && a.Positions[r]-pos >= int32(s.window) {
							return 0
						}
						return 1
					}
					for j := range past {
						pos := int32(j)
						if p := a.Past[g].Positions; p != nil {
							pos = p[j]
						}
						e = append(e, sees(pos)*math.Exp(dot(query, key[j*s.dim:][:s.dim])*a.Scale))
					}
					if s.own {
						for j := range r + 1 {
							pos := int32(0)
							if s.window > 0 {
								pos = a.Positions[j]
							}
							e = append(e, sees(pos)*math.Exp(dot(query, own[(j*len(s.entries)+g)*s.dim:][:s.dim])*a.Scale))
						}
					}
					sum := 0.0
					for _, v := range e {
						sum += v
					}
					for j := range past {
						mean[j] += e[j] / sum / float64(s.rows)
					}
				}
				for j, m := range mean {
					want[j] = math.Log(m)
				}
				compare.Close(t, name+": "+s.name, got[h*width:][:width], want, 1e-5, compare.Floor(1), compare.EqualInf())
			}
		}
	}
}
