//go:build gpu && linux && amd64

package kernels_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// TestCUDAHalfCaches: over caches in bf16 everything but prefill attention is as
// exact as over float32.
func TestCUDAHalfCaches(t *testing.T) {
	d, exact := openCUDA(t), open(t, "reference64")
	for _, s := range append(slices.Clone(attendShapes), randomShapes(12)...) {
		if s.rows*s.heads/len(s.entries) >= 64 && !s.own {
			continue // the test below
		}
		draw := func(d device, bf16 bool) (out, lse, scores *kernels.Tensor, grads []output) {
			rng := rand.New(rand.NewPCG(5, 6))
			a := halved(d, s.attend(d, rng), bf16)
			out, lse, scores = s.observe(d, a)
			if s.own {
				dOut, dScore := s.gradients(d, rng, true, true)
				grads = s.grad(d, a, dOut, dScore)
			}
			return out, lse, scores, grads
		}
		tol := max(s.tol, 3e-5)
		out, lse, scores, grads := draw(d, true)
		wantOut, wantLSE, wantScores, wantGrads := draw(exact, false)
		compare.Close(t, s.name+": out", out.Float64s(), wantOut.Float64s(), tol, compare.Floor(magnitude(wantOut.Float64s())))
		compare.Close(t, s.name+": lse", lse.Float64s(), wantLSE.Float64s(), tol, compare.Floor(s.logits+1))
		compare.Close(t, s.name+": scores", scores.Float64s(), wantScores.Float64s(), tol, compare.Floor(s.logits+1), compare.EqualInf())
		for i, w := range wantGrads {
			compare.Close(t, s.name+": "+w.name, grads[i].values, w.values, tol, compare.Floor(w.floor))
		}
	}
}

// plainAttention is attention over the past alone, in float64 but for what it rounds
// to bf16: the queries and, if asked for, the probabilities.
func plainAttention(a *kernels.Attend, round func(float64) float64) (out, lse []float64) {
	rows, heads, dim := a.Rows(), a.Heads(), a.HeadDim()
	q := a.Q.Float64s()
	out, lse = make([]float64, rows*heads*dim), make([]float64, heads*rows)
	for h := range heads {
		g := h / a.Group()
		k, v := a.Past[g].K.Float64s(), a.Past[g].V.Float64s()
		for r := range rows {
			from, to := kernels.Visible(a, g, r)
			logits, top := make([]float64, to), math.Inf(-1)
			for j := from; j < to; j++ {
				for i := range dim {
					logits[j] += round(q[(r*heads+h)*dim+i]) * k[j*dim+i]
				}
				logits[j] *= a.Scale
				top = max(top, logits[j])
			}
			sum := 0.0
			for j := from; j < to; j++ {
				p := math.Exp(logits[j] - top)
				sum += p
				for i := range dim {
					out[(r*heads+h)*dim+i] += round(p) * v[j*dim+i]
				}
			}
			for i := range dim {
				out[(r*heads+h)*dim+i] /= sum
			}
			lse[h*rows+r] = top + math.Log(sum)
		}
	}
	return out, lse
}

// TestCUDAPrefillAttention: on tensor cores, for all tails, groups and windows, at
// most twice the error of a plain implementation that rounds queries and
// probabilities to bf16.
func TestCUDAPrefillAttention(t *testing.T) {
	d := openCUDA(t)
	undo, _ := kernels.SetHopper(d.b, false)
	defer undo()
	shapes := []attendShape{
		{name: "one tile", rows: 64, heads: 1, dim: 64, entries: []int{64}},
		{name: "tails of rows and entries", rows: 70, heads: 2, dim: 32, entries: []int{131, 75}},
		{name: "group", rows: 23, heads: 8, dim: 64, entries: []int{40, 100}},
		{name: "MQA", rows: 17, heads: 7, dim: 128, entries: []int{50}},
		{name: "narrow head", rows: 90, heads: 2, dim: 8, entries: []int{190, 90}},
		{name: "head between widths", rows: 65, heads: 2, dim: 80, entries: []int{65, 80}},
		{name: "wide head", rows: 66, heads: 1, dim: 256, entries: []int{99}},
		{name: "window", rows: 100, heads: 2, dim: 16, entries: []int{200, 200}, window: 37},
		{name: "window, evicted", rows: 80, heads: 4, dim: 16, entries: []int{150, 90}, window: 50, evicted: true},
		{name: "sharp logits", rows: 70, heads: 2, dim: 16, entries: []int{90, 90}, logits: 40},
	}
	checkPrefill(t, d, 0, shapes)
}

// checkPrefill holds prefill attention against float64, and lse alone within tol
// against lse beside the output.
func checkPrefill(t *testing.T, d device, tol float64, shapes []attendShape) {
	exact := open(t, "reference64")
	worst := 0.0
	for _, s := range shapes {
		a := halved(exact, s.attend(exact, rand.New(rand.NewPCG(7, 8))), false)
		want, wantLSE := plainAttention(a, func(v float64) float64 { return v })
		plain, plainLSE := plainAttention(a, func(v float64) float64 { return float64(kernels.BF16ToF32(kernels.F32ToBF16(float32(v)))) })
		b := halved(d, s.attend(d, rand.New(rand.NewPCG(7, 8))), true)
		out, lse := d.garbage(s.rows, s.heads*s.dim), d.garbage(s.heads, s.rows)
		d.b.Attention(out, lse, b)
		floor, floorLSE := compare.Floor(magnitude(want)), compare.Floor(s.logits+1)
		limit, limitLSE := compare.Compare(plain, want, floor).Err, compare.Compare(plainLSE, wantLSE, floorLSE).Err
		compare.Close(t, s.name+": out", out.Float64s(), want, 2*limit+1e-5, floor)
		compare.Close(t, s.name+": lse", lse.Float64s(), wantLSE, 2*limitLSE+1e-5, floorLSE)
		worst = max(worst, compare.Compare(out.Float64s(), want, floor).Err)
		onlyLSE, onlyOut := d.garbage(s.heads, s.rows), d.garbage(s.rows, s.heads*s.dim)
		d.b.Attention(onlyOut, nil, b)
		d.b.Attention(nil, onlyLSE, b)
		compare.Close(t, s.name+": out alone", onlyOut.Float64s(), out.Float64s(), 0)
		compare.Close(t, s.name+": lse alone", onlyLSE.Float64s(), lse.Float64s(), tol)
	}
	if worst < 1e-4 {
		t.Errorf("the largest error is %v: nothing was rounded", worst)
	}
}

// TestCUDAHalfCopies: rows get into caches in bf16 rounded, and move there as they are.
func TestCUDAHalfCopies(t *testing.T) {
	d := openCUDA(t)
	x := random(rand.New(rand.NewPCG(1, 2)), 5*3*4, 1)
	head := d.b.Alloc(kernels.BF16, 5, 4)
	d.b.CopyHead(head, d.tensor(x, 5, 3, 4), 1)
	var want []float64
	for r := range 5 {
		for i := range 4 {
			want = append(want, float64(kernels.BF16ToF32(kernels.F32ToBF16(float32(x[(r*3+1)*4+i])))))
		}
	}
	compare.Close(t, "CopyHead", head.Float64s(), want, 0)
	moved := d.b.Alloc(kernels.BF16, 2, 4)
	d.b.Gather(moved, head, []int32{1, 4})
	compare.Close(t, "Gather", moved.Float64s(), slices.Concat(want[4:8], want[16:20]), 0)
	d.b.Gather(head.Rows(0, 2), head, []int32{1, 4})
	compare.Close(t, "Gather in place", head.Rows(0, 2).Float64s(), moved.Float64s(), 0)
	d.b.Copy(moved, head.Rows(3, 5))
	compare.Close(t, "Copy", moved.Float64s(), want[12:20], 0)
	d.b.Fill(moved, 1.00390625) // halfway between two bf16 numbers: to even
	compare.Close(t, "Fill", moved.Float64s(), []float64{1, 1, 1, 1, 1, 1, 1, 1}, 0)
}
