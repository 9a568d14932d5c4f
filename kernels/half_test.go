package kernels_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// TestHalfCaches: over pairs in bf16 the backends on host memory compute what they do
// over the same numbers in their own type, bit for bit.
func TestHalfCaches(t *testing.T) {
	for _, name := range []string{"cpu", "reference", "reference64"} {
		d := open(t, name)
		for _, s := range append(slices.Clone(attendShapes), randomShapes(6)...) {
			draw := func(bf16 bool) (values [][]float64) {
				rng := rand.New(rand.NewPCG(5, 6))
				a := halved(d, s.attend(d, rng), bf16)
				out, lse, scores := s.observe(d, a)
				values = [][]float64{out.Float64s(), lse.Float64s(), scores.Float64s()}
				if s.own {
					dOut, dScore := s.gradients(d, rng, true, true)
					for _, g := range s.grad(d, a, dOut, dScore) {
						values = append(values, g.values)
					}
				}
				return values
			}
			got, want := draw(true), draw(false)
			for i := range want {
				compare.Close(t, name+": "+s.name, got[i], want[i], 0, compare.EqualInf())
			}
		}
	}
}

// TestHalfCopies: rows get into caches in bf16 rounded, and move there as they are.
func TestHalfCopies(t *testing.T) {
	for _, name := range kernels.Backends.Names() {
		d := open(t, name)
		x := d.tensor([]float64{0, 1.00390625, 2, 3, 4, 5.0625, 6, 7, 8, 9, 10, 11}, 3, 2, 2)
		head, moved := d.b.Alloc(kernels.BF16, 3, 2), d.b.Alloc(kernels.BF16, 2, 2)
		d.b.CopyHead(head, x, 0)
		compare.Close(t, name+": CopyHead", head.Float64s(), []float64{0, 1, 4, 5.0625, 8, 9}, 0)
		d.b.Gather(moved, head, []int32{1, 2})
		compare.Close(t, name+": Gather", moved.Float64s(), []float64{4, 5.0625, 8, 9}, 0)
		d.b.Copy(moved, head.Rows(0, 2))
		compare.Close(t, name+": Copy", moved.Float64s(), []float64{0, 1, 4, 5.0625}, 0)
		d.b.Gather(head.Rows(0, 2), head, []int32{1, 2})
		compare.Close(t, name+": Gather in place", head.Rows(0, 2).Float64s(), []float64{4, 5.0625, 8, 9}, 0)
		wide := d.b.Alloc(d.b.Compute(), 1, 2)
		d.b.Gather(wide, head, []int32{0})
		compare.Close(t, name+": Gather, widened", wide.Float64s(), []float64{4, 5.0625}, 0)
		for what, f := range map[string]func(){
			"Copy":   func() { d.b.Copy(wide, head.Rows(0, 1)) },
			"Gather": func() { d.b.Gather(moved, x.Reshape(6, 2), []int32{0, 1}) },
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
