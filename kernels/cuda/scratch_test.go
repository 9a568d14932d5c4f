//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"math/rand/v2"
	"testing"

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
		} {
			for _, half := range []bool{false, true} {
				if !half && work > 0 {
					continue // the same again
				}
				counted := memcount.New(d.B)
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
				forecasts := calls(kernelstest.Device{B: counted})
				for op, run := range calls(d) {
					before := countedTemporary(counted, forecasts[op])
					if got := cuda.Temporary(d.B, run); got > before || float64(got) < 0.9*float64(before)-2000 {
						t.Errorf("%s, bf16 %v, work %d: %s takes %d bytes, %d were foretold", s.Name, half, work, op, got, before)
					}
				}
			}
		}
		restore()
	}
}

// countedTemporary is the temporary memory that d foretells for f.
func countedTemporary(d *memcount.Counter, f func()) int64 {
	d.ResetTemporary()
	f()
	return d.Temporary()
}
