//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestCUDAMaps: operations on every element are those on pieces of 1,000, which are no whole
// block, wherever tensors begin and end, and change nothing else.
func TestCUDAMaps(t *testing.T) {
	d := openCUDA(t)
	rng := rand.New(rand.NewPCG(1, 2))
	const room = 16 // elements before and behind
	for _, c := range []struct{ n, at, other int }{{4096, 0, 0}, {4096, 1, 0}, {4096, 0, 2}, {4096, 4, 8}, {4095, 0, 0}, {9000, 4, 4}, {8192, 12, 3}} {
		values := func(at int) *kernels.Tensor {
			all := d.Tensor(kernelstest.Random(rng, c.n+2*room, 1), c.n+2*room, 1)
			return all.Rows(at, at+c.n)
		}
		x, y, z := values(c.at), values(c.at), values(c.other)
		for name, op := range map[string]struct {
			out kernels.DType
			run func(a, b *kernels.Tensor, in ...*kernels.Tensor)
		}{
			"Add":         {kernels.F32, func(a, _ *kernels.Tensor, in ...*kernels.Tensor) { d.B.Add(a, in[0], in[1]) }},
			"Axpy":        {kernels.F32, func(a, _ *kernels.Tensor, in ...*kernels.Tensor) { d.B.Axpy(a, 0.5, in[0]) }},
			"SiLUMul":     {kernels.F32, func(a, _ *kernels.Tensor, in ...*kernels.Tensor) { d.B.SiLUMul(a, in[0], in[1]) }},
			"SiLUMulBF16": {kernels.BF16, func(a, _ *kernels.Tensor, in ...*kernels.Tensor) { d.B.SiLUMul(a, in[0], in[1]) }},
			"GateMul":     {kernels.F32, func(a, _ *kernels.Tensor, in ...*kernels.Tensor) { d.B.GateMul(kernels.GELUTanh, a, in[0], in[1]) }},
			"GateMulGrad": {kernels.F32, func(a, b *kernels.Tensor, in ...*kernels.Tensor) {
				d.B.GateMulGrad(kernels.ClampedSwiGLU, a, b, in[0], in[1], in[2])
			}},
			"SoftCap":     {kernels.F32, func(a, _ *kernels.Tensor, in ...*kernels.Tensor) { d.B.SoftCap(a, in[0], 1.5) }},
			"GELU":        {kernels.F32, func(a, _ *kernels.Tensor, in ...*kernels.Tensor) { d.B.GELU(a, in[0]) }},
			"SiLUMulGrad": {kernels.F32, func(a, b *kernels.Tensor, in ...*kernels.Tensor) { d.B.SiLUMulGrad(a, b, in[0], in[1], in[2]) }},
		} {
			what := fmt.Sprintf("%s of %d at %d and %d", name, c.n, c.at, c.other)
			result := func(piece int) [][]float64 {
				var all, to [2]*kernels.Tensor
				for i := range to {
					all[i] = d.B.Alloc(op.out, c.n+2*room, 1)
					d.B.Fill(all[i], 7)
					to[i] = all[i].Rows(c.other, c.other+c.n)
				}
				for from := 0; from < c.n; from += piece {
					end := min(c.n, from+piece)
					op.run(to[0].Rows(from, end), to[1].Rows(from, end), x.Rows(from, end), y.Rows(from, end), z.Rows(from, end))
				}
				return [][]float64{all[0].Float64s(), all[1].Float64s()}
			}
			whole, pieces := result(c.n), result(1000)
			for i := range whole {
				compare.Close(t, fmt.Sprintf("%s: output %d", what, i), whole[i], pieces[i], 1e-6)
			}
		}
	}
}

// TestCUDARoPE: heads of every width and number, whole vectors or not, against float64.
func TestCUDARoPE(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	for _, shape := range [][4]int{{3, 2, 8, 4}, {2, 40, 128, 64}, {2, 3, 10, 5}, {3, 5, 12, 6}, {3, 2, 20, 8}, {2, 3, 18, 8}, {2, 700, 4, 2}, {2, 300, 16, 8}} {
		rows, heads, dim, half := shape[0], shape[1], shape[2], shape[3]
		run := func(d kernelstest.Device) []float64 {
			rng := rand.New(rand.NewPCG(3, 4))
			freqs, pos := make([]float32, half), make([]int32, rows)
			for i := range freqs {
				freqs[i] = rng.Float32()
			}
			for r := range pos {
				pos[r] = int32(rng.IntN(100))
			}
			all := d.Tensor(kernelstest.Random(rng, (rows+1)*heads*dim, 1), rows+1, heads, dim)
			x := all.Rows(0, rows)
			d.B.RoPE(x, x, pos, kernels.NewRoPETable(d.B, freqs, 100, 1), false)
			return all.Float64s()
		}
		want := run(exact)
		compare.Close(t, fmt.Sprint(shape), run(d), want, 1e-5, compare.Floor(kernelstest.Magnitude(want)))
	}
}
