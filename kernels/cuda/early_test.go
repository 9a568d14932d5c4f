//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// TestCUDAEarly: linear layers of a recorded step begin before the kernels ahead of them have ended, and have the
// bits of layers that do not; nothing else begins early. The host driver lets what comes before the wait see
// nothing that kernels ahead write.
func TestCUDAEarly(t *testing.T) {
	d := openHostDriver(t)
	const width, hidden = 1024, 64
	rng := rand.New(rand.NewPCG(4, 4))
	x, norm := d.Tensor(kernelstest.Random(rng, width, 1), 1, width), d.Tensor(kernelstest.Random(rng, width, 1), width)
	w := []*kernels.Tensor{d.Weight(rng, kernels.BF16, hidden, width), d.Weight(rng, kernels.BF16, width, hidden), d.Weight(rng, kernels.F32, hidden, width)}
	run := func(b kernels.Backend, alloc kernels.Allocator) *kernels.Tensor {
		u, v, y, z := alloc.Alloc(kernels.F32, 1, width), alloc.Alloc(kernels.F32, 1, hidden), alloc.Alloc(kernels.F32, 1, width), alloc.Alloc(kernels.F32, 1, hidden)
		b.Norm(u, x, nil, kernels.Norm{Weight: norm, Eps: 1e-5})
		b.Linear(v, u, w[0], nil, 1, 0) // after a norm
		b.Linear(y, v, w[1], nil, 1, 0) // after a layer that began early
		b.SiLUMul(y, u, y)
		b.Linear(z, y, w[2], nil, 1, 0)
		return z
	}
	for _, c := range []struct {
		name, version string
		replay, early bool
	}{
		{"recorded", "12030", true, true},
		{"recorded for one run, in which weights may change", "12030", false, false},
		{"a driver that cannot capture it", "12020", true, false},
	} {
		for _, refused := range []string{"", "0"} {
			name := fmt.Sprintf("%s, HOSTCUDA_EARLY=%q", c.name, refused)
			t.Setenv("HOSTCUDA_EARLY", refused)
			t.Setenv("HOSTCUDA_VERSION", c.version)
			want := run(d.B, d.B).Float64s()
			warnings, restore := cuda.CatchWarnings(d.B)
			g := newGraph(t, d)
			arena := kernels.NewArena(g.Backend())
			var got *kernels.Tensor
			record := func() bool { return g.Record(func() { got = run(g.Backend(), arena) }) }
			if !c.replay {
				record = func() bool {
					return g.Run(func() error { arena.Release(nil); got = run(g.Backend(), arena); return nil }) == nil
				}
			}
			recorded := record() && len(*warnings) == 0
			restore()
			if recorded != (refused == "" || !c.early) {
				t.Errorf("%s: recorded: %v, warnings %q", name, recorded, *warnings)
			}
			if !recorded {
				continue
			}
			for i := range 2 {
				if c.replay {
					g.Replay()
				}
				compare.Close(t, fmt.Sprint(name, ": replay ", i), got.Float64s(), want, 0)
			}
		}
	}
}
