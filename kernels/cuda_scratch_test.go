//go:build gpu && linux && amd64

package kernels_test

import (
	"math/rand/v2"
	"testing"

	"glimpse/kernels"
)

// TestCUDAScratch: the temporary memory of attention, of observed rows and of their gradient
// is what the forecast says, whichever kernels they run on.
func TestCUDAScratch(t *testing.T) {
	d := openCUDA(t)
	for _, work := range []int{0, 1 << 30} {
		restore := kernels.SetExactWork(work)
		for _, s := range []attendShape{
			{name: "prompt", rows: 80, heads: 2, dim: 16, entries: []int{90, 200}},
			{name: "window", rows: 32, heads: 2, dim: 16, entries: []int{90, 200}, window: 20},
			{name: "learned rows", rows: 32, heads: 4, dim: 64, entries: []int{400, 90}, own: true},
			{name: "response", rows: 80, heads: 4, dim: 32, entries: []int{300, 90}, own: true},
			{name: "response, window", rows: 80, heads: 4, dim: 32, entries: []int{300, 90}, own: true, window: 100},
			{name: "odd heads", rows: 80, heads: 4, dim: 12, entries: []int{300, 90}, own: true},
		} {
			for _, half := range []bool{false, true} {
				if !half && work > 0 {
					continue // the same again
				}
				dry := kernels.NewDry(d.b)
				calls := func(d device) map[string]func() {
					rng := rand.New(rand.NewPCG(5, 6))
					a := halved(d, s.attend(d, rng), half)
					out, lse, scores := d.garbage(s.rows, s.heads*s.dim), d.garbage(s.heads, s.rows), d.garbage(s.heads, 400)
					calls := map[string]func(){
						"Attention":                        func() { d.b.Attention(out, lse, a) },
						"ObservedScores":                   func() { d.b.ObservedScores(scores, lse, a) },
						"ObserveAttention":                 func() { d.b.ObserveAttention(out, lse, scores, a) },
						"ObserveAttention without outputs": func() { d.b.ObserveAttention(nil, lse, scores, a) },
					}
					if s.own {
						dq, dk, dv, dScore := d.garbage(s.rows, s.heads, s.dim), d.garbage(s.rows, 2, s.dim), d.garbage(s.rows, 2, s.dim), d.garbage(s.heads, 400)
						calls["AttentionGrad"] = func() { d.b.AttentionGrad(dq, dk, dv, a, out, lse, scores, out, dScore) }
					}
					return calls
				}
				forecasts := calls(device{dry})
				for op, run := range calls(d) {
					before := dryTemporary(dry, forecasts[op])
					if got := kernels.Temporary(d.b, run); got > before || float64(got) < 0.9*float64(before)-2000 {
						t.Errorf("%s, bf16 %v, work %d: %s takes %d bytes, %d were foretold", s.name, half, work, op, got, before)
					}
				}
			}
		}
		restore()
	}
}

// dryTemporary is the temporary memory that d foretells for f.
func dryTemporary(d *kernels.Dry, f func()) int64 {
	d.ResetTemporary()
	f()
	return d.Temporary()
}
