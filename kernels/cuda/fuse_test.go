//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"testing"

	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// TestCUDAFused: a sum and the norm that follows it are one launch, and two where that
// is switched off, in a graph as well.
func TestCUDAFused(t *testing.T) {
	d := openCUDA(t)
	kernelstest.CheckAddNorm(t, "cuda")
	for _, bias := range []bool{false, true} {
		for setting, want := range map[string]int{"": 1, "0": 2} {
			t.Setenv("GLIMPSE_CUDA_FUSE", setting)
			what := fmt.Sprintf("bias=%v GLIMPSE_CUDA_FUSE=%q", bias, setting)
			c := kernelstest.NewAddNorm(d, 3, 40, bias)
			y := d.Garbage(3, 40)
			run := func(b kernels.Backend) {
				if bias {
					b.AddLayerNorm(y, c.X, c.Delta, c.W, c.B, kernelstest.AddNormEps)
				} else {
					b.AddRMSNorm(y, c.X, c.Delta, c.W, kernelstest.AddNormEps)
				}
			}
			if n := calls(d, func() { run(d.B) }); n != want {
				t.Errorf("%s: %d launches, want %d", what, n, want)
			}
			g := newGraph(t, d)
			if !g.Record(func() { run(g.Backend()) }) {
				t.Fatal("nothing was recorded")
			}
			if n := cuda.Recorded(g); n != want {
				t.Errorf("%s: %d operations in the graph, want %d", what, n, want)
			}
		}
	}
}
