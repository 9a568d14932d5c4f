//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"testing"

	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// TestCUDAFused: a sum and the norm that follows it are one launch, in a graph as well.
func TestCUDAFused(t *testing.T) {
	d := openCUDA(t)
	kernelstest.CheckAddNorm(t, "cuda")
	for _, bias := range []bool{false, true} {
		c, y := kernelstest.NewAddNorm(d, 3, 40, bias), d.Garbage(3, 40)
		run := func(b kernels.Backend) {
			b.Norm(y, c.X, c.Delta, c.N)
		}
		if n := calls(d, func() { run(d.B) }); n != 1 {
			t.Errorf("bias=%v: %d launches, want 1", bias, n)
		}
		g := newGraph(t, d)
		if !g.Record(func() { run(g.Backend()) }) {
			t.Fatal("nothing was recorded")
		}
		if n := cuda.Recorded(g); n != 1 {
			t.Errorf("bias=%v: %d operations in the graph, want 1", bias, n)
		}
	}
}
