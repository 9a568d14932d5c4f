package kernels_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestHalfCaches: over pairs in bf16 the backends on host memory compute what they do
// over the same numbers in their own type, bit for bit.
func TestHalfCaches(t *testing.T) {
	names := []string{"cpu", "reference", "reference64"}
	if testing.Short() { // the references have one goroutine
		names = names[:1]
	}
	for _, name := range names {
		d := kernelstest.Open(t, name)
		for _, s := range append(slices.Clone(kernelstest.AttendShapes), kernelstest.RandomShapes(6)...) {
			draw := func(bf16 bool) (values [][]float64) {
				rng := rand.New(rand.NewPCG(5, 6))
				a := kernelstest.Halved(d, s.Attend(d, rng), bf16)
				out, lse, scores := s.Observe(d, a)
				values = [][]float64{out.Float64s(), lse.Float64s(), scores.Float64s()}
				if s.Own {
					dOut, dScore := s.Gradients(d, rng, true, true)
					for _, g := range s.Grad(d, a, dOut, dScore) {
						values = append(values, g.Values)
					}
				}
				return values
			}
			got, want := draw(true), draw(false)
			for i := range want {
				compare.Close(t, name+": "+s.Name, got[i], want[i], 0, compare.EqualInf())
			}
		}
	}
}

// TestHalfCopies: rows get into caches in bf16 rounded, and move there as they are.
func TestHalfCopies(t *testing.T) {
	for _, name := range kernels.Backends.Names() {
		d := kernelstest.Open(t, name)
		x := d.Tensor([]float64{0, 1.00390625, 2, 3, 4, 5.0625, 6, 7, 8, 9, 10, 11}, 3, 2, 2)
		head, moved := d.B.Alloc(kernels.BF16, 3, 2), d.B.Alloc(kernels.BF16, 2, 2)
		d.B.CopyHead(head, x, 0)
		compare.Close(t, name+": CopyHead", head.Float64s(), []float64{0, 1, 4, 5.0625, 8, 9}, 0)
		d.B.Gather(moved, head, []int32{1, 2})
		compare.Close(t, name+": Gather", moved.Float64s(), []float64{4, 5.0625, 8, 9}, 0)
		d.B.Copy(moved, head.Rows(0, 2))
		compare.Close(t, name+": Copy", moved.Float64s(), []float64{0, 1, 4, 5.0625}, 0)
		d.B.Gather(head.Rows(0, 2), head, []int32{1, 2})
		compare.Close(t, name+": Gather in place", head.Rows(0, 2).Float64s(), []float64{4, 5.0625, 8, 9}, 0)
		wide := d.B.Alloc(d.B.Compute(), 1, 2)
		d.B.Gather(wide, head, []int32{0})
		compare.Close(t, name+": Gather, widened", wide.Float64s(), []float64{4, 5.0625}, 0)
		for what, f := range map[string]func(){
			"Copy":   func() { d.B.Copy(wide, head.Rows(0, 1)) },
			"Gather": func() { d.B.Gather(moved, x.Reshape(6, 2), []int32{0, 1}) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: %s between types: no panic", name, what)
					}
				}()
				f()
			}()
		}
	}
}
