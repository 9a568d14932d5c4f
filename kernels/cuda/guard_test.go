//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"os"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
)

// TestCUDAArenas: where allocations are guarded, tensors of an arena are allocated one by
// one, so that a kernel that writes past one faults (a planted bug shows it), and are
// gone after Release.
func TestCUDAArenas(t *testing.T) {
	d := openCUDA(t)
	a := kernels.NewArena(d.B)
	before := cuda.InUse(d.B)
	for range 3 {
		var all []*kernels.Tensor
		for n := range 40 {
			all = append(all, a.Alloc(kernels.F32, n))
			d.B.Fill(all[n], float64(n))
		}
		m := a.Mark()
		for n := range 10 {
			x := a.Alloc(kernels.F32, 2, n)
			d.B.Fill(x, 1)
			d.B.Add(x, x, x)
		}
		a.Release(m)
		for n, x := range all {
			want := make([]float64, n)
			for i := range want {
				want[i] = float64(n)
			}
			compare.Close(t, "arena", x.Float64s(), want, 0)
		}
		if os.Getenv("GLIMPSE_CUDA_EXACT") != "" {
			if got := a.Bytes(); got != 4*40*39/2 {
				t.Errorf("the arena holds %d bytes, its tensors have %d", got, 4*40*39/2)
			}
		}
		a.Release(nil)
		if after := cuda.InUse(d.B); os.Getenv("GLIMPSE_CUDA_EXACT") != "" && after != before {
			t.Errorf("%d bytes are in use after Release, %d before", after, before)
		}
	}
}
