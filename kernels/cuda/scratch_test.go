//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"math/rand/v2"
	"testing"

	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
	"glimpse/kernels/memcount"
)

// TestCUDAScratch: the temporary memory of attention, of observed rows and of their gradient
// is what the forecast says, whichever kernels they run on.
func TestCUDAScratch(t *testing.T) {
	d := openCUDA(t)
	for _, work := range []int{0, 1 << 30} {
		restore := cuda.SetExactWork(work)
		for _, s := range []kernelstest.AttendShape{
			{Name: "prompt", Rows: 80, Heads: 2, Dim: 16, Entries: []int{90, 200}},
			{Name: "window", Rows: 32, Heads: 2, Dim: 16, Entries: []int{90, 200}, Window: 20},
			{Name: "learned rows", Rows: 32, Heads: 4, Dim: 64, Entries: []int{400, 90}, Own: true},
			{Name: "response", Rows: 80, Heads: 4, Dim: 32, Entries: []int{300, 90}, Own: true},
			{Name: "response, window", Rows: 80, Heads: 4, Dim: 32, Entries: []int{300, 90}, Own: true, Window: 100},
			{Name: "odd heads", Rows: 80, Heads: 4, Dim: 12, Entries: []int{300, 90}, Own: true},
			{Name: "step", Rows: 1, Heads: 4, Dim: 64, Entries: []int{400, 90}},
			{Name: "sinks", Rows: 80, Heads: 4, Dim: 16, Entries: []int{90, 200}, Sinks: 1},
			{Name: "sinks, learned rows", Rows: 32, Heads: 4, Dim: 64, Entries: []int{400, 90}, Own: true, Sinks: 1},
			{Name: "capped prompt", Rows: 80, Heads: 2, Dim: 16, Entries: []int{90, 200}, SoftCap: 5},
			{Name: "capped learned rows", Rows: 32, Heads: 4, Dim: 64, Entries: []int{400, 90}, Own: true, SoftCap: 5},
			{Name: "capped response", Rows: 80, Heads: 4, Dim: 32, Entries: []int{300, 90}, Own: true, SoftCap: 5},
			{Name: "capped step of a large group, sinks", Rows: 1, Heads: 16, Dim: 64, Entries: []int{400, 90}, SoftCap: 5, Sinks: 1},
			{Name: "step, odd heads", Rows: 1, Heads: 4, Dim: 10, Entries: []int{400, 90}},
		} {
			for _, half := range []bool{false, true} {
				if !half && work > 0 {
					continue // the same again
				}
				calls := func(d kernelstest.Device) map[string]func() {
					rng := rand.New(rand.NewPCG(5, 6))
					a := kernelstest.Halved(d, s.Attend(d, rng), half)
					out, lse, scores := d.Garbage(s.Rows, s.Heads*s.Dim), d.Garbage(s.Heads, s.Rows), d.Garbage(s.Heads, 400)
					calls := map[string]func(){
						"Attention":                        func() { d.B.Attention(out, lse, a) },
						"ObservedScores":                   func() { d.B.ObservedScores(scores, lse, a) },
						"ObserveAttention":                 func() { d.B.ObserveAttention(out, lse, scores, a) },
						"ObserveAttention without outputs": func() { d.B.ObserveAttention(nil, lse, scores, a) },
					}
					if s.Own {
						dq, dk, dv, dScore := d.Garbage(s.Rows, s.Heads, s.Dim), d.Garbage(s.Rows, 2, s.Dim), d.Garbage(s.Rows, 2, s.Dim), d.Garbage(s.Heads, 400)
						calls["AttentionGrad"] = func() { d.B.AttentionGrad(dq, dk, dv, a, out, lse, scores, out, dScore) }
					}
					return calls
				}
				for op, run := range calls(d) {
					counted := memcount.New(d.B)
					calls(kernelstest.Device{B: counted})[op]()
					before := counted.Temporary()
					if got := cuda.Temporary(d.B, run); got > before || float64(got) < 0.9*float64(before)-2000 {
						t.Errorf("%s, bf16 %v, work %d: %s takes %d bytes, %d were foretold", s.Name, half, work, op, got, before)
					}
				}
			}
		}
		restore()
	}
}

// TestCUDAScratchOfProducts: so is that of products, whatever types meet and in whichever way
// they are multiplied.
func TestCUDAScratchOfProducts(t *testing.T) {
	d := openCUDA(t)
	rng := rand.New(rand.NewPCG(7, 8))
	types := []kernels.DType{kernels.F32, kernels.BF16, kernels.F16}
	blocks, err := kernels.ParseStored("Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	for _, work := range []int{0, 1 << 30} {
		restore := cuda.SetExactWork(work)
		for _, s := range [][3]int{{1, 8, 64}, {9, 8, 64}, {66, 8, 24}, {5, 4, 520}, {16, 32, 64}, {17, 32, 96}, {66, 64, 128}} {
			m, n, k := s[0], s[1], s[2]
			for _, of := range append(types, blocks) {
				if of == blocks && (n%32 > 0 || k%32 > 0) {
					continue
				}
				if of == kernels.F32 && work > 0 {
					continue // the same again
				}
				for _, rows := range types[:2] {
					calls := func(d kernelstest.Device, w *kernels.Tensor) map[string]func() {
						y, x, c, a := d.Garbage(m, n), d.B.Alloc(rows, m, k), d.Garbage(m, k), d.B.Alloc(rows, m, n)
						d.B.Fill(x, 1)
						d.B.Fill(a, 1)
						calls := map[string]func(){"Linear": func() { d.B.Linear(y, x, w, nil, 1, 0) }}
						if rows == kernels.F32 {
							calls["MatMul"] = func() { d.B.MatMul(c, a, w, 1, 0) }
						}
						return calls
					}
					var weight *kernels.Tensor
					if of == blocks {
						weight = d.Blocks(rng, of.String(), n, k)
					} else {
						weight = d.Weight(rng, of, n, k)
					}
					for op, run := range calls(d, weight) {
						counted := memcount.New(d.B)
						calls(kernelstest.Device{B: counted}, counted.Alloc(of, n, k))[op]()
						before := counted.Temporary()
						if got := cuda.Temporary(d.B, run); got > before || float64(got) < 0.9*float64(before)-2000 {
							t.Errorf("%v: %s of %v rows and %v weights, work %d: takes %d bytes, %d were foretold", s, op, rows, of, work, got, before)
						}
					}
				}
			}
		}
		restore()
	}
}
