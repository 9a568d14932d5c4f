//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/formats"
	"glimpse/kernels/kernelstest"
)

// TestCUDAHalfCaches: over caches in bf16 everything but prefill attention is as
// exact as over float32.
func TestCUDAHalfCaches(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	for _, s := range slices.Concat(kernelstest.AttendShapes, kernelstest.BoundedShapes, kernelstest.RandomShapes(12)) {
		if s.Rows*s.Heads/len(s.Entries) >= 64 && !s.Own {
			continue // the test below
		}
		draw := func(d kernelstest.Device, bf16 bool) (out, lse, scores *kernels.Tensor, grads []kernelstest.Output) {
			rng := rand.New(rand.NewPCG(5, 6))
			a := kernelstest.Halved(d, s.Attend(d, rng), bf16)
			out, lse, scores = s.Observe(d, a)
			if s.Own {
				dOut, dScore := s.Gradients(d, rng, true, true)
				grads = s.Grad(d, a, dOut, dScore)
			}
			return out, lse, scores, grads
		}
		tol := max(s.Tol, 3e-5)
		out, lse, scores, grads := draw(d, true)
		wantOut, wantLSE, wantScores, wantGrads := draw(exact, false)
		compare.Close(t, s.Name+": out", out.Float64s(), wantOut.Float64s(), tol, compare.Floor(kernelstest.Magnitude(wantOut.Float64s())))
		compare.Close(t, s.Name+": lse", lse.Float64s(), wantLSE.Float64s(), tol, compare.Floor(s.Logits+1))
		compare.Close(t, s.Name+": scores", scores.Float64s(), wantScores.Float64s(), tol, compare.Floor(s.Logits+1), compare.EqualInf())
		for i, w := range wantGrads {
			compare.Close(t, s.Name+": "+w.Name, grads[i].Values, w.Values, tol, compare.Floor(w.Floor))
		}
	}
}

// bounded is a logit of a, with its soft cap.
func bounded(a *kernels.Attend, logit float64) float64 {
	if a.SoftCap > 0 {
		return a.SoftCap * math.Tanh(logit/a.SoftCap)
	}
	return logit
}

// sinkShare is what a head's sink, if there are any, adds to a sum of exponentials relative to top.
func sinkShare(a *kernels.Attend, h int, top float64) float64 {
	if a.Sinks == nil {
		return 0
	}
	return math.Exp(a.Sinks.Float64s()[h] - top)
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
			from, to := cuda.Visible(a, g, r)
			logits, top := make([]float64, to), math.Inf(-1)
			for j := from; j < to; j++ {
				for i := range dim {
					logits[j] += round(q[(r*heads+h)*dim+i]) * k[j*dim+i]
				}
				logits[j] = bounded(a, logits[j]*a.Scale)
				top = max(top, logits[j])
			}
			sum := sinkShare(a, h, top)
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
	undo, _ := cuda.SetHopper(d.B, false)
	defer undo()
	shapes := []kernelstest.AttendShape{
		{Name: "one tile", Rows: 64, Heads: 1, Dim: 64, Entries: []int{64}},
		{Name: "tails of rows and entries", Rows: 70, Heads: 2, Dim: 32, Entries: []int{131, 75}},
		{Name: "group", Rows: 23, Heads: 8, Dim: 64, Entries: []int{40, 100}},
		{Name: "MQA", Rows: 17, Heads: 7, Dim: 128, Entries: []int{50}},
		{Name: "narrow head", Rows: 90, Heads: 2, Dim: 8, Entries: []int{190, 90}},
		{Name: "head between widths", Rows: 65, Heads: 2, Dim: 80, Entries: []int{65, 80}},
		{Name: "wide head", Rows: 66, Heads: 1, Dim: 256, Entries: []int{99}},
		{Name: "window", Rows: 100, Heads: 2, Dim: 16, Entries: []int{200, 200}, Window: 37},
		{Name: "window, evicted", Rows: 80, Heads: 4, Dim: 16, Entries: []int{150, 90}, Window: 50, Evicted: true},
		{Name: "sharp logits", Rows: 70, Heads: 2, Dim: 16, Entries: []int{90, 90}, Logits: 40},
		{Name: "soft cap", Rows: 70, Heads: 4, Dim: 64, Entries: []int{131, 75}, Logits: 8, SoftCap: 5},
		{Name: "soft cap, window, evicted", Rows: 80, Heads: 4, Dim: 96, Entries: []int{150, 90}, Logits: 8, SoftCap: 5, Window: 50, Evicted: true},
		{Name: "soft cap and sinks, wide head", Rows: 66, Heads: 1, Dim: 256, Entries: []int{99}, Logits: 8, SoftCap: 5, Sinks: 1},
		{Name: "sinks", Rows: 70, Heads: 4, Dim: 64, Entries: []int{131, 75}, Sinks: 2},
	}
	checkPrefill(t, d, 0, shapes)
}

// checkPrefill holds prefill attention against float64, and lse alone within tol
// against lse beside the output.
func checkPrefill(t *testing.T, d kernelstest.Device, tol float64, shapes []kernelstest.AttendShape) {
	exact := kernelstest.Open(t, "reference64")
	worst := 0.0
	for _, s := range shapes {
		a := kernelstest.Halved(exact, s.Attend(exact, rand.New(rand.NewPCG(7, 8))), false)
		want, wantLSE := plainAttention(a, func(v float64) float64 { return v })
		plain, plainLSE := plainAttention(a, func(v float64) float64 { return float64(formats.BF16ToF32(formats.F32ToBF16(float32(v)))) })
		b := kernelstest.Halved(d, s.Attend(d, rand.New(rand.NewPCG(7, 8))), true)
		out, lse := d.Garbage(s.Rows, s.Heads*s.Dim), d.Garbage(s.Heads, s.Rows)
		d.B.Attention(out, lse, b)
		floor, floorLSE := compare.Floor(kernelstest.Magnitude(want)), compare.Floor(s.Logits+1)
		limit, limitLSE := compare.Compare(plain, want, floor).Err, compare.Compare(plainLSE, wantLSE, floorLSE).Err
		compare.Close(t, s.Name+": out", out.Float64s(), want, 2*limit+1e-5, floor)
		compare.Close(t, s.Name+": lse", lse.Float64s(), wantLSE, 2*limitLSE+1e-5, floorLSE)
		worst = max(worst, compare.Compare(out.Float64s(), want, floor).Err)
		onlyLSE, onlyOut := d.Garbage(s.Heads, s.Rows), d.Garbage(s.Rows, s.Heads*s.Dim)
		d.B.Attention(onlyOut, nil, b)
		d.B.Attention(nil, onlyLSE, b)
		compare.Close(t, s.Name+": out alone", onlyOut.Float64s(), out.Float64s(), 0)
		compare.Close(t, s.Name+": lse alone", onlyLSE.Float64s(), lse.Float64s(), tol)
	}
	if worst < 1e-4 {
		t.Errorf("the largest error is %v: nothing was rounded", worst)
	}
}

// TestCUDAHalfCopies: rows get into caches in bf16 rounded, and move there as they are.
func TestCUDAHalfCopies(t *testing.T) {
	d := openCUDA(t)
	x := kernelstest.Random(rand.New(rand.NewPCG(1, 2)), 5*3*4, 1)
	head := d.B.Alloc(kernels.BF16, 5, 4)
	d.B.CopyHead(head, d.Tensor(x, 5, 3, 4), 1)
	var want []float64
	for r := range 5 {
		for i := range 4 {
			want = append(want, float64(formats.BF16ToF32(formats.F32ToBF16(float32(x[(r*3+1)*4+i])))))
		}
	}
	compare.Close(t, "CopyHead", head.Float64s(), want, 0)
	moved := d.B.Alloc(kernels.BF16, 2, 4)
	d.B.Gather(moved, head, []int32{1, 4})
	compare.Close(t, "Gather", moved.Float64s(), slices.Concat(want[4:8], want[16:20]), 0)
	d.B.Gather(head.Rows(0, 2), head, []int32{1, 4})
	compare.Close(t, "Gather in place", head.Rows(0, 2).Float64s(), moved.Float64s(), 0)
	d.B.Copy(moved, head.Rows(3, 5))
	compare.Close(t, "Copy", moved.Float64s(), want[12:20], 0)
	d.B.Fill(moved, 1.00390625) // halfway between two bf16 numbers: to even
	compare.Close(t, "Fill", moved.Float64s(), []float64{1, 1, 1, 1, 1, 1, 1, 1}, 0)
}

// TestCUDAUnsupportedProducts: products in half precision that cuBLASLt has no algorithm for are those of the same
// numbers in float32, which is said once.
func TestCUDAUnsupportedProducts(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	needHostDriver(t, d)
	defer cuda.SetExactWork(0)()
	t.Setenv("HOSTCUDA_EVEN", "1")
	warnings, restore := cuda.CatchWarnings(d.B)
	defer restore()
	for _, shape := range [][3]int{{70, 33, 9}, {66, 32, 9}, {65, 35, 16}} { // rows, inner, outputs
		m, k, n := shape[0], shape[1], shape[2]
		run := func(d kernelstest.Device, weights kernels.DType, transposed bool) []float64 {
			rng := rand.New(rand.NewPCG(uint64(k), uint64(n)))
			x := kernelstest.Rounded(kernelstest.Random(rng, m*k, 1))
			y := d.Tensor(kernelstest.Random(rng, m*n, 1), m, n)
			if transposed {
				d.B.Linear(y, d.Tensor(x, m, k), d.Weight(rng, weights, n, k), nil, 0.5, 2)
			} else {
				d.B.MatMul(y, d.Tensor(x, m, k), d.Weight(rng, weights, k, n), 0.5, 2)
			}
			return y.Float64s()
		}
		for _, weights := range []kernels.DType{kernels.BF16, kernels.F16} {
			for _, transposed := range []bool{true, false} {
				compare.Close(t, fmt.Sprint(shape, weights, transposed), run(d, weights, transposed), run(exact, weights, transposed), 1e-5, compare.Floor(1))
			}
		}
	}
	if len(*warnings) != 1 || !strings.Contains((*warnings)[0], "no algorithm") {
		t.Errorf("warnings %q, want one of products", *warnings)
	}
}
