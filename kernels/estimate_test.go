package kernels_test

import (
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestEstimateOfAllComponents: an estimate from all components of every key, a page for each, is attention itself, whatever
// the scale, the soft cap and the sinks.
func TestEstimateOfAllComponents(t *testing.T) {
	for _, s := range []kernelstest.AttendShape{
		{Name: "plain", Rows: 1, Heads: 4, Dim: 8, Entries: []int{50, 50}},
		{Name: "sinks", Rows: 1, Heads: 4, Dim: 8, Entries: []int{50, 50}, Sinks: 1},
		{Name: "soft cap and sinks", Rows: 1, Heads: 4, Dim: 8, Entries: []int{50, 50}, Logits: 8, SoftCap: 3, Sinks: 1},
	} {
		for _, scale := range []float64{0, 0.9} {
			d := kernelstest.Open(t, "cpu")
			a := s.Attend(d, rand.New(rand.NewPCG(5, 7)))
			pages := &kernels.PageHeads{Logits: kernels.Logits{Scale: scale, SoftCap: a.SoftCap, Sinks: a.Sinks}}
			if scale != 0 {
				a.Scale = scale
			}
			for _, kv := range a.Past {
				bounds := d.B.Alloc(kernels.F32, 2, s.Dim, kv.Entries())
				pages.Heads = append(pages.Heads, kernels.PageHead{Entries: kv.Entries(), Want: 4, Size: 1, Components: s.Dim, Bounds: bounds})
			}
			sel := d.B.Selector()
			sel.PageBounds(pages, a.Past, make([]int, 2))
			_, _, want := s.Observe(d, a)
			for _, how := range []kernels.Estimate{kernels.EstimateBound, kernels.EstimatePartial} {
				scores, got := d.B.Alloc(kernels.F32, 2, 50), d.B.Alloc(kernels.F32, s.Heads, 50)
				sel.EstimatePages(scores, got, a.Q, pages, how, nil)
				compare.Close(t, s.Name, got.Float64s(), want.Float64s(), 1e-5, compare.Floor(1))
			}
		}
	}
}
