//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
	"glimpse/kernels/memcount"
)

// TestCUDARounded: norms, sums with norms and activations into BF16 are those into
// float32, rounded, on rows of all widths, and leave the same sums.
func TestCUDARounded(t *testing.T) {
	d := openCUDA(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{1, 1}, {9, 4096}, {10, 4100}, {2, 9000}, {3, 31}, {2, 33}, {5, 255}, {7, 257}, {70, 96}, {4, 511}} {
		rows, width := shape[0], shape[1]
		tensor := func(shape ...int) *kernels.Tensor {
			return d.Tensor(kernelstest.Random(rng, kernels.ShapeLen(shape), 1), shape...)
		}
		x, z, w, bias := tensor(rows, width), tensor(rows, width), tensor(width), tensor(width)
		rms, layer := kernels.Norm{Weight: w, Eps: 1e-3}, kernels.Norm{Weight: w, Bias: bias, Eps: 1e-3}
		for name, run := range map[string]func(y, sum *kernels.Tensor){
			"RMSNorm":        func(y, _ *kernels.Tensor) { d.B.Norm(y, x, nil, rms) },
			"LayerNorm":      func(y, _ *kernels.Tensor) { d.B.Norm(y, x, nil, layer) },
			"RMSNorm, sum":   func(y, sum *kernels.Tensor) { d.B.Norm(y, sum, z, rms) },
			"LayerNorm, sum": func(y, sum *kernels.Tensor) { d.B.Norm(y, sum, z, layer) },
			"SiLUMul":        func(y, _ *kernels.Tensor) { d.B.SiLUMul(y, x, z) },
			"GELUTanh":       func(y, _ *kernels.Tensor) { d.B.GateMul(kernels.GELUTanh, y, x, z) },
			"ClampedSwiGLU":  func(y, _ *kernels.Tensor) { d.B.GateMul(kernels.ClampedSwiGLU, y, x, z) },
			"GELU":           func(y, _ *kernels.Tensor) { d.B.GELU(y, x) },
		} {
			what := fmt.Sprintf("%s of %v", name, shape)
			wide, narrow := d.Garbage(rows, width), d.B.Alloc(kernels.BF16, rows, width)
			d.B.Fill(narrow, math.NaN())
			sums := []*kernels.Tensor{d.Garbage(rows, width), d.Garbage(rows, width)}
			d.B.Copy(sums[0], x)
			d.B.Copy(sums[1], x)
			run(wide, sums[0])
			run(narrow, sums[1])
			compare.Close(t, what, narrow.Float64s(), kernelstest.Rounded(wide.Float64s()), 0)
			compare.Close(t, what+": sum", sums[1].Float64s(), sums[0].Float64s(), 0)
		}
	}
}

// TestCUDARowsOfF16: products of rounded rows with weights in F16 are right where rows lie outside its range, far below it,
// or in another row's shadow, wherever the largest number is; what is not finite stays in its row.
func TestCUDARowsOfF16(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	all := func(s float64) func(row int) float64 { return func(int) float64 { return s } }
	for name, c := range map[string]struct {
		m, k, n, from int // from: rows of x that are left out, so that x begins anywhere
		scale         func(row int) float64
		last          float64 // the last number of x, if not 0
	}{
		"large":                     {70, 33, 5, 0, all(1e30), 0},
		"the largest numbers":       {70, 8, 5, 0, all(2e37), 0},
		"small":                     {70, 33, 5, 0, all(1e-30), 0},
		"subnormal in bf16":         {70, 33, 5, 0, all(1e-38), 0},
		"zeros":                     {70, 33, 5, 0, all(0), 0},
		"rows of many magnitudes":   {70, 64, 16, 0, func(row int) float64 { return math.Ldexp(1, -row%20) }, 0},
		"infinity":                  {70, 200, 5, 0, all(1), math.Inf(1)},
		"no number":                 {70, 200, 5, 0, all(1), math.NaN()},
		"whole vectors":             {96, 256, 8, 0, all(1e6), 0},
		"begins anywhere":           {96, 257, 8, 3, all(1e6), 0},
		"a last number of one part": {96, 256, 8, 0, all(1), -1e6},
		"more parts than blocks":    {2100, 4099, 1, 0, all(1), 1e6},
	} {
		run := func(d kernelstest.Device, dtype kernels.DType) []float64 {
			rng := rand.New(rand.NewPCG(uint64(c.k), uint64(c.n)))
			values, before := kernelstest.Random(rng, c.m*c.k, 1), kernelstest.Random(rng, (c.m-c.from)*c.n, 1)
			for i := range values {
				values[i] *= c.scale(i / c.k)
			}
			for i := range before {
				before[i] *= c.scale(c.from + i/c.n)
			}
			if c.last != 0 {
				values[len(values)-1] = c.last
			}
			y, x := d.Tensor(before, c.m-c.from, c.n), d.Stored(dtype, kernelstest.Rounded(values), c.m, c.k)
			d.B.Linear(y, x.Rows(c.from, c.m), d.Weight(rng, kernels.F16, c.n, c.k), nil, 0.25, -1.5)
			return y.Float64s()
		}
		got, want := run(d, kernels.BF16), run(exact, kernels.F64)
		for row := range c.m - c.from { // by its own magnitude
			got, want := got[row*c.n:(row+1)*c.n], want[row*c.n:(row+1)*c.n]
			scale, last := c.scale(c.from+row), c.from+row == c.m-1 && c.last != 0
			if last && (math.IsInf(c.last, 0) || math.IsNaN(c.last)) {
				for i, v := range got {
					if v != want[i] && !(math.IsNaN(v) && math.IsNaN(want[i])) {
						t.Errorf("%s: the last row has %v, want %v", name, v, want[i])
					}
				}
				continue
			}
			if last {
				scale = math.Abs(c.last)
			}
			floor := compare.Floor(scale * math.Sqrt(float64(c.k)) / 4)
			compare.Close(t, fmt.Sprintf("%s, row %d", name, row), got, want, 1e-5*max(1, float64(c.k)/64), floor)
		}
	}
}

// TestCUDARoundedRows: a product of rows in BF16 takes them as they are, whatever the
// weights, and has the bits of a product that rounds them itself, without a launch for it.
func TestCUDARoundedRows(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	for _, shape := range [][3]int{{1, 1, 1}, {65, 130, 67}, {100, 33, 7}, {70, 64, 96}, {3, 200, 5}} { // rows, inner, outputs
		m, k, n := shape[0], shape[1], shape[2]
		for _, dtype := range kernelstest.WeightTypes {
			what := fmt.Sprint(shape, " ", dtype)
			values := kernelstest.Rounded(kernelstest.Factors(rand.New(rand.NewPCG(3, uint64(m))), dtype, m*k))
			run := func(d kernelstest.Device, xType kernels.DType) []float64 {
				rng := rand.New(rand.NewPCG(uint64(k), uint64(n)))
				w, y, bias := d.Weight(rng, dtype, n, k), d.Tensor(kernelstest.Random(rng, m*n, 1), m, n), d.Tensor(kernelstest.Random(rng, n, 1), n)
				d.B.Linear(y, d.Stored(xType, values, m, k), w, bias, 0.5, -1.5)
				return y.Float64s()
			}
			want := run(exact, kernels.F64)
			compare.Close(t, what, run(d, kernels.BF16), want, 1e-5*max(1, float64(k)/64), compare.Floor(kernelstest.Magnitude(want)))
			if dtype == kernels.F32 || m <= 64 {
				continue
			}
			restore := cuda.SetExactWork(0)
			compare.Close(t, what+": bits", run(d, kernels.BF16), run(d, kernels.F32), 0)
			restore()
		}
	}
	defer cuda.SetExactWork(1000)()
	few, many := d.B.Alloc(kernels.BF16, 3, 4), d.B.Alloc(kernels.BF16, 10, 20)
	for _, c := range []struct {
		rows int
		w    *kernels.Tensor
		want bool
	}{
		{65, many, true}, {64, many, false}, {65, few, false}, {100, few, true},
		{65, d.Garbage(10, 20), false}, {65, d.B.Alloc(kernels.F16, 10, 20), true}, {64, d.B.Alloc(kernels.F16, 10, 20), false},
	} {
		if got := d.B.RoundsToBF16(c.rows, c.w); got != c.want {
			t.Errorf("RoundsToBF16(%d, %s %v) is %v", c.rows, c.w.DType, c.w.Shape, got)
		}
		if got := memcount.New(d.B).RoundsToBF16(c.rows, c.w); got != c.want {
			t.Errorf("forecast of %d rows with %s %v: %v", c.rows, c.w.DType, c.w.Shape, got)
		}
	}
	y, x := d.Garbage(70, 10), d.B.Alloc(kernels.BF16, 70, 20)
	if n := calls(d, func() { d.B.Linear(y, x, many, nil, 1, 0) }); n != 1 {
		t.Errorf("a product of rounded rows takes %d launches, want 1", n)
	}
	if n := calls(d, func() { d.B.Linear(y, d.Garbage(70, 20), many, nil, 1, 0) }); n < 2 {
		t.Errorf("a product that rounds takes %d launches, want at least 2", n)
	}
}
