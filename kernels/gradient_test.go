package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
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
	d := kernelstest.Open(t, "reference64")
	for _, s := range []kernelstest.AttendShape{
		{Name: "GQA", Rows: 4, Heads: 4, Dim: 6, Entries: []int{9, 9}, Own: true},
		{Name: "MHA, ragged", Rows: 3, Heads: 2, Dim: 4, Entries: []int{2, 11}, Own: true, ExtraWidth: 2},
		{Name: "MQA", Rows: 5, Heads: 3, Dim: 2, Entries: []int{7}, Own: true},
		{Name: "one past empty", Rows: 4, Heads: 2, Dim: 4, Entries: []int{0, 5}, Own: true},
		{Name: "no past", Rows: 4, Heads: 2, Dim: 4, Entries: []int{0}, Own: true},
		{Name: "one row", Rows: 1, Heads: 2, Dim: 4, Entries: []int{6}, Own: true},
		{Name: "window", Rows: 4, Heads: 4, Dim: 4, Entries: []int{9, 9}, Own: true, Window: 3},
		{Name: "window, evicted", Rows: 4, Heads: 2, Dim: 4, Entries: []int{9, 3}, Own: true, Window: 8, Evicted: true},
		{Name: "sharp logits", Rows: 4, Heads: 2, Dim: 4, Entries: []int{8, 5}, Own: true, Logits: 6},
		{Name: "sinks", Rows: 4, Heads: 4, Dim: 4, Entries: []int{8, 5}, Own: true, Sinks: 1},
		{Name: "soft cap", Rows: 4, Heads: 4, Dim: 4, Entries: []int{8, 5}, Own: true, Logits: 6, SoftCap: 3},
		{Name: "soft cap, sinks and a window, evicted", Rows: 4, Heads: 2, Dim: 4, Entries: []int{9, 3}, Own: true, Window: 8, Evicted: true, Logits: 6, SoftCap: 3, Sinks: 1},
	} {
		for _, v := range []struct {
			name          string
			out, logScore bool
		}{{"dOut", true, false}, {"dLogScore", false, true}, {"both", true, true}} {
			rng := rand.New(rand.NewPCG(3, 5))
			a := s.Attend(d, rng)
			dOut, dScore := s.Gradients(d, rng, v.out, v.logScore)
			loss := func() float64 {
				out, _, scores := s.Observe(d, a)
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
			for _, got := range s.Grad(d, &given, dOut, dScore) {
				want := derivative(own[got.Name].F64(), loss)
				compare.Close(t, s.Name+", "+v.name+": "+got.Name, got.Values, want, 1e-7, compare.Floor(max(1, kernelstest.Magnitude(want))))
			}
		}
	}
}

// TestGradientsAreDerivatives holds the other gradients of the float64 reference
// against central differences.
func TestGradientsAreDerivatives(t *testing.T) {
	d := kernelstest.Open(t, "reference64")
	rng := rand.New(rand.NewPCG(17, 19))
	const rows, width = 3, 5
	const n = rows * width
	draw := func(n int) *kernels.Tensor { return d.Tensor(kernelstest.Random(rng, n, 1), n/width, width) }
	x, z, dy, y := draw(n), draw(n), draw(n), draw(n)
	check := func(name string, got, by *kernels.Tensor, loss func() float64) {
		t.Helper()
		compare.Close(t, name, got.F64(), derivative(by.F64(), loss), 1e-7, compare.Floor(1))
	}

	w, dx := d.Tensor(kernelstest.Random(rng, width, 1), width), d.Garbage(rows, width)
	for name, n := range map[string]kernels.Norm{
		"RMSNorm": {Weight: w, Eps: 0.1}, "LayerNorm": {Weight: w, Bias: d.Tensor(kernelstest.Random(rng, width, 1), width), Eps: 0.1},
	} {
		d.B.NormGrad(dx, x, dy, n)
		check(name, dx, x, func() float64 { d.B.Norm(y, x, nil, n); return dot(dy.F64(), y.F64()) })
	}

	d.B.GELUGrad(dx, x, dy)
	check("GELUGrad", dx, x, func() float64 { d.B.GELU(y, x); return dot(dy.F64(), y.F64()) })

	dGate, dUp := d.Garbage(rows, width), d.Garbage(rows, width)
	d.B.SiLUMulGrad(dGate, dUp, x, z, dy)
	act := func() float64 { d.B.SiLUMul(y, x, z); return dot(dy.F64(), y.F64()) }
	check("SiLUMulGrad of the gate", dGate, x, act)
	check("SiLUMulGrad of up", dUp, z, act)
	for _, gate := range []kernels.Gate{kernels.SiLU, kernels.GELUTanh, kernels.ClampedSwiGLU} {
		wide := d.Tensor(kernelstest.Random(rng, n, 6), rows, width) // some of it is clamped
		d.B.GateMulGrad(gate, dGate, dUp, wide, z, dy)
		act := func() float64 { d.B.GateMul(gate, y, wide, z); return dot(dy.F64(), y.F64()) }
		check(fmt.Sprintf("GateMulGrad %d of the gate", gate), dGate, wide, act)
		check(fmt.Sprintf("GateMulGrad %d of up", gate), dUp, z, act)
		d.B.GateMulGrad(gate, dGate, dUp, z, wide, dy)
		act = func() float64 { d.B.GateMul(gate, y, z, wide); return dot(dy.F64(), y.F64()) }
		check(fmt.Sprintf("GateMulGrad %d of a wide up", gate), dUp, wide, act)
	}

	// y = 0.5 · x wᵀ: MatMul is the gradient of x and MatMulTA that of w.
	const out = 4
	weight, dOut, product := draw(out*width), d.Tensor(kernelstest.Random(rng, rows*out, 1), rows, out), d.Garbage(rows, out)
	linear := func() float64 { d.B.Linear(product, x, weight, nil, 0.5, 0); return dot(dOut.F64(), product.F64()) }
	dX, dW := d.Garbage(rows, width), d.Garbage(out, width)
	d.B.MatMul(dX, dOut, weight, 0.5, 0)
	check("MatMul", dX, x, linear)
	d.B.MatMulTA(dW, dOut, x, 0.5, 0)
	check("MatMulTA", dW, weight, linear)

	targets := make([]float64, n)
	for i := range targets {
		targets[i] = math.Log(rng.Float64())
		if i >= n-width { // the last head attends to nothing
			targets[i] = math.Inf(-1)
		}
	}
	target := d.Tensor(targets, rows, width)
	for name, loss := range map[string]func(l, g, s, t *kernels.Tensor, w float64){"ScoreKL": d.B.ScoreKL, "ScoreMSE": d.B.ScoreMSE} {
		grad, ignored := d.Garbage(rows, width), d.Garbage(rows, width)
		loss(d.Tensor([]float64{0}), grad, x, target, 0.3)
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
		d := kernelstest.Open(t, name)
		logs := d.Tensor([]float64{math.Log(0.1), math.Log(0.3)}, 1, 2) // normalised ¼, ¾
		target, loss, grad := d.Tensor([]float64{math.Log(0.2), math.Log(0.2)}, 1, 2), d.Stored(kernels.F64, []float64{1}), d.Garbage(1, 2)
		for _, shift := range []float64{0, 39, 41, 86, 90, 200, 1e4} {
			d.B.Fill(loss, 1)
			d.B.ScoreKL(loss, grad, logs, d.Tensor([]float64{-1 - shift, -1 - shift}, 1, 2), 2)
			// 1 + 2·(½ log(½/¼) + ½ log(½/¾)); 2·(s − p)
			compare.Close(t, fmt.Sprintf("%s: KL of targets e^-%v", name, shift), loss.Float64s(), []float64{1 + math.Log(2) + math.Log(2.0/3)}, 1e-6)
			compare.Close(t, fmt.Sprintf("%s: gradient of KL of targets e^-%v", name, shift), grad.Float64s(), []float64{-0.5, 0.5}, 1e-6)
		}
		d.B.ScoreMSE(loss, grad, logs, target, 100)
		// 100 · (0.1² + 0.1²); 2·100·(s − t)·s
		compare.Close(t, name+": MSE", loss.Float64s(), []float64{1 + math.Log(2) + math.Log(2.0/3) + 2}, 1e-6)
		compare.Close(t, name+": gradient of MSE", grad.Float64s(), []float64{-2, 6}, 1e-6)
	}
}

// TestObservedScoresByDefinition: probabilities from an explicit softmax, of
// which rows are averaged, against the logarithms that the kernels give.
func TestObservedScoresByDefinition(t *testing.T) {
	shapes := append(kernelstest.RandomShapes(8), kernelstest.AttendShapes[:12]...)
	universal := len(shapes)
	for i, s := range append(shapes, kernelstest.BoundedShapes...) {
		for _, name := range kernels.Backends.Names() {
			d := kernelstest.Open(t, name)
			if i >= universal && d.B.OwnMemory() {
				continue
			}
			a := s.Attend(d, rand.New(rand.NewPCG(23, 29)))
			_, _, scores := s.Observe(d, a)
			got, width, group := scores.Float64s(), scores.Width(), s.Heads/len(s.Entries)
			q := a.Q.Float64s()
			var own, sinks []float64
			if s.Own {
				own = a.K.Float64s()
			}
			if a.Sinks != nil {
				sinks = a.Sinks.Float64s()
			}
			logit := func(query, key []float64) float64 {
				if x := dot(query, key) * a.Scale; s.SoftCap == 0 {
					return x
				} else {
					return s.SoftCap * math.Tanh(x/s.SoftCap)
				}
			}
			for h := range s.Heads {
				g := h / group
				n, key := s.Entries[g], a.Past[g].K.Float64s()
				want := make([]float64, width)
				for j := range want {
					want[j] = kernelstest.Unwritten
				}
				mean := make([]float64, n)
				for r := range s.Rows {
					query := q[(r*s.Heads+h)*s.Dim:][:s.Dim]
					var e []float64
					past := n
					if !s.Own {
						past -= s.Rows - 1 - r
					}
					// sees tells whether a pair at position pos is inside the window.
					sees := func(pos int32) float64 {
						if s.Window > 0 && a.Positions[r]-pos >= int32(s.Window) {
							return 0
						}
						return 1
					}
					for j := range past {
						pos := int32(j)
						if p := a.Past[g].Positions; p != nil {
							pos = p[j]
						}
						e = append(e, sees(pos)*math.Exp(logit(query, key[j*s.Dim:][:s.Dim])))
					}
					if s.Own {
						for j := range r + 1 {
							pos := int32(0)
							if s.Window > 0 {
								pos = a.Positions[j]
							}
							e = append(e, sees(pos)*math.Exp(logit(query, own[(j*len(s.Entries)+g)*s.Dim:][:s.Dim])))
						}
					}
					sum := 0.0
					if sinks != nil {
						sum = math.Exp(sinks[h])
					}
					for _, v := range e {
						sum += v
					}
					for j := range past {
						mean[j] += e[j] / sum / float64(s.Rows)
					}
				}
				for j, m := range mean {
					want[j] = math.Log(m)
				}
				compare.Close(t, name+": "+s.Name, got[h*width:][:width], want, 1e-5, compare.Floor(1), compare.EqualInf())
			}
		}
	}
}
