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
		for name, run := range map[string]func(y, sum *kernels.Tensor){
			"RMSNorm":       func(y, _ *kernels.Tensor) { d.B.RMSNorm(y, x, w, 1e-3) },
			"LayerNorm":     func(y, _ *kernels.Tensor) { d.B.LayerNorm(y, x, w, bias, 1e-3) },
			"AddRMSNorm":    func(y, sum *kernels.Tensor) { d.B.AddRMSNorm(y, sum, z, w, 1e-3) },
			"AddLayerNorm":  func(y, sum *kernels.Tensor) { d.B.AddLayerNorm(y, sum, z, w, bias, 1e-3) },
			"SiLUMul":       func(y, _ *kernels.Tensor) { d.B.SiLUMul(y, x, z) },
			"GELUTanh":      func(y, _ *kernels.Tensor) { d.B.GateMul(kernels.GELUTanh, y, x, z) },
			"ClampedSwiGLU": func(y, _ *kernels.Tensor) { d.B.GateMul(kernels.ClampedSwiGLU, y, x, z) },
			"GELU":          func(y, _ *kernels.Tensor) { d.B.GELU(y, x) },
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
		fuse string
		want bool
	}{
		{65, many, "", true}, {64, many, "", false}, {65, few, "", false}, {100, few, "", true}, {65, many, "0", false},
		{65, d.Garbage(10, 20), "", false}, {65, d.B.Alloc(kernels.F16, 10, 20), "", true}, {64, d.B.Alloc(kernels.F16, 10, 20), "", false},
	} {
		t.Setenv("GLIMPSE_CUDA_FUSE", c.fuse)
		if got := d.B.RoundsToBF16(c.rows, c.w); got != c.want {
			t.Errorf("RoundsToBF16(%d, %s %v) with GLIMPSE_CUDA_FUSE=%q is %v", c.rows, c.w.DType, c.w.Shape, c.fuse, got)
		}
		if got := memcount.New(d.B).RoundsToBF16(c.rows, c.w); got != c.want {
			t.Errorf("forecast of %d rows with %s %v and GLIMPSE_CUDA_FUSE=%q: %v", c.rows, c.w.DType, c.w.Shape, c.fuse, got)
		}
	}
	t.Setenv("GLIMPSE_CUDA_FUSE", "")
	y, x := d.Garbage(70, 10), d.B.Alloc(kernels.BF16, 70, 20)
	if n := calls(d, func() { d.B.Linear(y, x, many, nil, 1, 0) }); n != 1 {
		t.Errorf("a product of rounded rows takes %d launches, want 1", n)
	}
	if n := calls(d, func() { d.B.Linear(y, d.Garbage(70, 20), many, nil, 1, 0) }); n < 2 {
		t.Errorf("a product that rounds takes %d launches, want at least 2", n)
	}
}
