package kernels_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/formats"
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
		for _, s := range slices.Concat(kernelstest.AttendShapes, kernelstest.BoundedShapes, kernelstest.RandomShapes(6)) {
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

// TestCachesOfBlocks: over pairs in blocks the references compute what they do over the same numbers,
// bit for bit. Fast backends round queries to bytes, and widened blocks to bf16.
func TestCachesOfBlocks(t *testing.T) {
	for name, tol := range map[string]float64{"cpu": 2e-2, "reference": 0} {
		d, exact := kernelstest.Open(t, name), kernelstest.Open(t, "reference64")
		if tol == 0 {
			exact = d
		}
		for i, s := range kernelstest.AttendShapes {
			if s.Logits > 0 || testing.Short() && i%3 > 0 {
				continue // sharp logits turn any rounding into another answer
			}
			s.Dim = 32 + i%2*64
			stored := []string{"Q8_0", "Q4_1", "Q5_0", "MXFP8", "KIVI4"}[i%5]
			dtype := kernels.KIVIKeys
			if stored != "KIVI4" {
				var err error
				if dtype, err = kernels.ParseStored(stored); err != nil {
					t.Fatal(err)
				}
			}
			draw := func(d kernelstest.Device, so bool) (values [][]float64) {
				rng := rand.New(rand.NewPCG(5, 6))
				a := kernelstest.HeldIn(d, s.Attend(d, rng), dtype, so)
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
			got, want := draw(d, true), draw(exact, false)
			for i := range want {
				compare.Close(t, name+": "+s.Name+" in "+stored, got[i], want[i], tol, compare.EqualInf(), compare.Floor(max(1, kernelstest.Magnitude(want[i]))))
			}
		}
	}
}

// TestCopiesOfBlocks: rows get into caches in blocks as Narrow has them, and move there as they are.
func TestCopiesOfBlocks(t *testing.T) {
	for _, name := range []string{"cpu", "reference", "reference64"} {
		d, rng := kernelstest.Open(t, name), rand.New(rand.NewPCG(3, 4))
		x := d.Tensor(kernelstest.Random(rng, 5*2*64, 1), 5, 2, 64)
		for _, f := range formats.Cached() {
			dtype, err := kernels.ParseStored(f.Name)
			if err != nil {
				t.Fatal(err)
			}
			row, want := make([]float32, 64), make([][]float64, 5)
			for r := range want {
				block := make([]byte, 64/f.Elems*f.Bytes)
				kernels.Read(row, x, (r*2+1)*64)
				f.Narrow(block, row)
				f.Decode(row, block)
				want[r] = kernels.FromF32(row, 64).Float64s()
			}
			head, moved := d.B.Alloc(dtype, 5, 64), d.B.Alloc(dtype, 2, 64)
			d.B.CopyHead(head, x, 1)
			compare.Close(t, name+": CopyHead", head.Float64s(), slices.Concat(want...), 0)
			d.B.Gather(moved, head, []int32{1, 4})
			compare.Close(t, name+": Gather", moved.Float64s(), slices.Concat(want[1], want[4]), 0)
			d.B.Copy(moved, head.Rows(2, 4))
			compare.Close(t, name+": Copy", moved.Float64s(), slices.Concat(want[2], want[3]), 0)
			wide := d.B.Alloc(d.B.Compute(), 1, 64)
			d.B.Gather(wide, head, []int32{3})
			compare.Close(t, name+": Gather, widened", wide.Float64s(), want[3], 0)
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
