package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestLowRank: linear layers with a low-rank update and their gradients on every backend
// against the products that define them, for tails of ranks, rows and widths and all types of
// weights.
func TestLowRank(t *testing.T) {
	exact := kernelstest.Open(t, "reference64")
	for _, name := range kernels.Backends.Names() {
		for i, s := range [][4]int{{1, 1, 1, 1}, {32, 70, 130, 8}, {3, 600, 5, 3}, {33, 40, 300, 16}, {2, 9, 31, 17}, {65, 33, 64, 9}} {
			rows, in, out, rank := s[0], s[1], s[2], s[3]
			run := func(d kernelstest.Device) (outs []kernelstest.Output) {
				rng := rand.New(rand.NewPCG(uint64(in), uint64(out)))
				draw := func(m, n int) *kernels.Tensor { return d.Tensor(kernelstest.Random(rng, m*n, 1), m, n) }
				x, a, up, dy := draw(rows, in), draw(rank, in), draw(out, rank), draw(rows, out)
				w := d.Weight(rng, kernelstest.WeightTypes[(i+1)%len(kernelstest.WeightTypes)], out, in)
				var bias *kernels.Tensor
				if i%2 == 0 {
					bias = d.Tensor(kernelstest.Random(rng, out, 1), out)
				}
				y, dx := d.Garbage(rows, out), d.Garbage(rows, in)
				low, dLow, da, dup := d.Garbage(rows, rank), d.Garbage(rows, rank), d.Garbage(rank, in), d.Garbage(out, rank)
				d.B.LowRank(y, low, x, w, bias, a, up, 0.5)
				d.B.LowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up, 0.5)
				for i, r := range []*kernels.Tensor{low, y, dLow, dx, da, dup} {
					outs = append(outs, kernelstest.Output{Name: []string{"low", "y", "dLow", "dx", "da", "dup"}[i], Values: r.Float64s()})
				}
				return outs
			}
			got, want := run(kernelstest.Open(t, name)), run(exact)
			for i, w := range want {
				compare.Close(t, fmt.Sprint(name, s, ": ", w.Name), got[i].Values, w.Values, 1e-5, compare.Floor(kernelstest.Magnitude(w.Values)))
			}
		}
	}
}

// TestMultiTensor: operations on many tensors are those on each of them, bit for bit but for the
// order of a sum.
func TestMultiTensor(t *testing.T) {
	sizes := []int{1, 300, 16384, 7, 40000, 256}
	for _, name := range kernels.Backends.Names() {
		d := kernelstest.Open(t, name)
		draw := func(seed uint64) (ts []*kernels.Tensor) {
			rng := rand.New(rand.NewPCG(seed, 2))
			for _, n := range sizes {
				v := kernelstest.Random(rng, n, 1)
				if seed == 4 { // second moments
					for i := range v {
						v[i] *= v[i]
					}
				}
				ts = append(ts, d.Tensor(v, n))
			}
			return ts
		}
		step := kernels.AdamWStep{Beta1: 0.9, Beta2: 0.99, Correct1: 0.2, Correct2: 0.02, Epsilon: 1e-8, LearningRate: 1e-2, WeightDecay: 0.1, GradScale: 0.5}
		ps, gs, ms, vs := draw(1), draw(2), draw(3), draw(4)
		qs, ns, us := draw(1), draw(3), draw(4)
		d.B.MultiAdamW(ps, gs, ms, vs, step)
		d.B.MultiAxpy(gs, -0.25, ms)
		hs, sum := draw(2), 0.0
		for i := range sizes {
			d.B.AdamW(qs[i], hs[i], ns[i], us[i], step)
			d.B.Axpy(hs[i], -0.25, ns[i])
			for what, pair := range map[string][2]*kernels.Tensor{"parameter": {ps[i], qs[i]}, "first moment": {ms[i], ns[i]}, "second moment": {vs[i], us[i]}, "sum": {gs[i], hs[i]}} {
				compare.Close(t, fmt.Sprint(name, ": ", what, " of ", sizes[i]), pair[0].Float64s(), pair[1].Float64s(), 0)
			}
			sum += d.B.SumSquares(hs[i])
		}
		got := d.B.MultiSumSquares(0, gs)
		compare.Close(t, name+": squares", []float64{got}, []float64{sum}, 1e-12)
		if again := d.B.MultiSumSquares(0, gs); again != got {
			t.Errorf("%s: squares are %v and then %v", name, got, again)
		}
		if none := d.B.MultiSumSquares(3, nil); none != 3 {
			t.Errorf("%s: squares of nothing after 3 are %v", name, none)
		}
		if parts := d.B.MultiSumSquares(d.B.MultiSumSquares(0, gs[:2]), gs[2:]); parts != got {
			t.Errorf("%s: squares of two lists are %v, of one %v", name, parts, got)
		}
		d.B.MultiFill(gs, 3)
		for i, g := range gs {
			want := make([]float64, sizes[i])
			for j := range want {
				want[j] = 3
			}
			compare.Close(t, name+": filled", g.Float64s(), want, 0)
		}
	}
}

// TestRoPEIntoAnother: the bits of a copy that is rotated, both ways.
func TestRoPEIntoAnother(t *testing.T) {
	const rows, heads, dim = 5, 3, 12
	rng := rand.New(rand.NewPCG(2, 3))
	x, pos := kernelstest.Random(rng, rows*heads*dim, 1), []int32{0, 3, 8, 9, 2}
	for _, name := range kernels.Backends.Names() {
		for _, half := range []int{dim / 2, 4} { // all dimensions, and the first of them
			d := kernelstest.Open(t, name)
			table := &kernels.RoPETable{Cos: d.Tensor(kernelstest.Random(rng, 10*half, 2), 10, half), Sin: d.Tensor(kernelstest.Random(rng, 10*half, 1), 10, half)}
			for _, inverse := range []bool{false, true} {
				from, want, got := d.Tensor(x, rows, heads, dim), d.Tensor(x, rows, heads, dim), d.Garbage(rows, heads, dim)
				d.B.RoPE(want, want, pos, table, inverse)
				d.B.RoPE(got, from, pos, table, inverse)
				compare.Close(t, name, got.Float64s(), want.Float64s(), 0)
				compare.Close(t, name+": what is rotated", from.Float64s(), x, 0, compare.Floor(1e-6))
			}
		}
	}
}

// TestMultiTensorRefuse: what does not fit panics on every backend.
func TestMultiTensorRefuse(t *testing.T) {
	for _, name := range kernels.Backends.Names() {
		d := kernelstest.Open(t, name)
		of := func(shape ...int) *kernels.Tensor { return d.Garbage(shape...) }
		for what, f := range map[string]func(){
			"a gradient less": func() {
				d.B.MultiAdamW([]*kernels.Tensor{of(3)}, nil, []*kernels.Tensor{of(3)}, []*kernels.Tensor{of(3)}, kernels.AdamWStep{})
			},
			"other lengths":         func() { d.B.MultiAxpy([]*kernels.Tensor{of(3)}, 1, []*kernels.Tensor{of(4)}) },
			"rows of other lengths": func() { d.B.Copy(of(3), of(4)) },
			"rows of another type":  func() { d.B.Copy(of(3), d.B.Alloc(kernels.BF16, 3)) },
			"another rank":          func() { d.B.LowRank(of(2, 5), of(2, 3), of(2, 4), of(5, 4), nil, of(3, 4), of(5, 2), 1) },
			"another width": func() {
				d.B.LowRankGrad(of(2, 3), of(2, 3), of(3, 4), of(5, 3), of(2, 5), of(2, 4), of(2, 3), of(5, 4), of(3, 4), of(5, 3), 1)
			},
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: %s: no panic", name, what)
					}
				}()
				f()
			}()
		}
	}
}
