//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
	"glimpse/kernels/memcount"
)

// TestCUDASplitK: products with few results of long sums are split along these, in two
// launches, for rows in both types and weights in both orders, with all tails; two runs
// have the same bits.
func TestCUDASplitK(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	for i, shape := range [][3]int{{1, 1, 512}, {32, 8, 512}, {33, 9, 513}, {5, 64, 640}, {31, 7, 1000}, {128, 3, 777}, {65, 16, 2049}} { // rows, results of each, sum
		m, n, k := shape[0], shape[1], shape[2]
		v := kernelstest.Variants[i%len(kernelstest.Variants)]
		if v.Alpha == 0 {
			v.Alpha = 1
		}
		for _, transposed := range []bool{true, false} {
			for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
				what := fmt.Sprintf("%v transposed=%v %s", shape, transposed, dtype)
				run := func(d kernelstest.Device, dtype kernels.DType) []float64 {
					rng := rand.New(rand.NewPCG(uint64(k), uint64(i)))
					x, w := d.Stored(dtype, kernelstest.Rounded(kernelstest.Random(rng, m*k, 1)), m, k), kernelstest.Random(rng, n*k, 1)
					y := d.Target(rng, v.Beta, m, n)
					if transposed {
						d.B.Linear(y, x, d.Tensor(w, n, k), nil, v.Alpha, v.Beta)
					} else {
						d.B.MatMul(y, x, d.Tensor(w, k, n), v.Alpha, v.Beta)
					}
					return y.Float64s()
				}
				want, got := run(exact, kernels.F64), run(d, dtype)
				compare.Close(t, what, got, want, 1e-5, compare.Floor(kernelstest.Magnitude(want)))
				compare.Close(t, what+": again", run(d, dtype), got, 0)
			}
		}
	}
	for _, c := range []struct{ m, n, k, launches int }{{32, 8, 512, 2}, {32, 8, 511, 1}, {32, 65, 512, 1}, {129, 8, 512, 1}} {
		y, x, w := d.Garbage(c.m, c.n), d.Garbage(c.m, c.k), d.Garbage(c.n, c.k)
		if n := calls(d, func() { d.B.Linear(y, x, w, nil, 1, 0) }); n != c.launches {
			t.Errorf("%+v takes %d launches", c, n)
		}
		counted := memcount.New(d.B)
		counted.Linear(counted.Alloc(kernels.F32, c.m, c.n), counted.Alloc(kernels.F32, c.m, c.k), counted.Alloc(kernels.F32, c.n, c.k), nil, 1, 0)
		if got, want := counted.Temporary(), 4*4*int64(c.m*c.n); c.launches == 2 && got < want {
			t.Errorf("%+v: forecast of %d temporary bytes, want at least %d", c, got, want)
		}
	}
}

// TestCUDALowRank: updates by low-rank factors, of rows in both types, for all tails and
// for more results than a block can hold; two runs have the same bits, and each takes two
// launches.
func TestCUDALowRank(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	for _, shape := range [][4]int{{1, 1, 1, 1}, {32, 96, 8, 64}, {5, 300, 3, 130}, {33, 129, 9, 63}, {130, 64, 31, 65}, {130, 64, 32, 5}} { // rows, in, rank, out
		m, k, rank, n := shape[0], shape[1], shape[2], shape[3]
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
			what := fmt.Sprint(shape, " ", dtype)
			run := func(d kernelstest.Device, dtype kernels.DType) []float64 {
				rng := rand.New(rand.NewPCG(uint64(k), uint64(n)))
				x := d.Stored(dtype, kernelstest.Rounded(kernelstest.Random(rng, m*k, 1)), m, k)
				a, b, y := d.Tensor(kernelstest.Random(rng, rank*k, 1), rank, k), d.Tensor(kernelstest.Random(rng, n*rank, 1), n, rank), d.Tensor(kernelstest.Random(rng, m*n, 1), m, n)
				if got := calls(d, func() { d.B.AddLowRank(y, x, a, b, 0.3, d.B) }); got != 2 && m*rank <= 4096 && d.B.OwnMemory() {
					t.Errorf("%s: %d launches, want 2", what, got)
				}
				return y.Float64s()
			}
			want, got := run(exact, kernels.F64), run(d, dtype)
			compare.Close(t, what, got, want, 1e-5, compare.Floor(kernelstest.Magnitude(want)))
			compare.Close(t, what+": again", run(d, dtype), got, 0)
		}
	}
	for wrong := range 4 {
		args := []*kernels.Tensor{d.Garbage(2, 6), d.Garbage(2, 5), d.Garbage(3, 5), d.Garbage(6, 3)}
		args[wrong] = d.Garbage(2, 4)
		if refused(&fuzzCall{run: func() { d.B.AddLowRank(args[0], args[1], args[2], args[3], 1, d.B) }}) == nil {
			t.Errorf("argument %d of another shape is not refused", wrong)
		}
	}
}
