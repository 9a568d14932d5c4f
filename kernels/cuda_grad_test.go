//go:build gpu && linux && amd64

package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// TestCUDAGradHalf: the gradient over caches in bf16 is as exact as over float32, on
// tensor cores, for all upstream gradients, tails, groups and windows; and the same twice.
func TestCUDAGradHalf(t *testing.T) {
	d, exact := openCUDA(t), open(t, "reference64")
	shapes := []attendShape{
		{name: "a group of 128 queries", rows: 32, heads: 4, dim: 128, entries: []int{333}, own: true},
		{name: "ragged, several splits", rows: 32, heads: 4, dim: 64, entries: []int{701, 130}, own: true, extraWidth: 3},
		{name: "fewest queries", rows: 16, heads: 1, dim: 8, entries: []int{1}, own: true},
		{name: "tail of queries", rows: 17, heads: 1, dim: 40, entries: []int{65}, own: true},
		{name: "two warps of queries", rows: 31, heads: 1, dim: 16, entries: []int{97}, own: true},
		{name: "one past empty", rows: 9, heads: 4, dim: 80, entries: []int{0, 44}, own: true},
		{name: "heads too wide for it", rows: 17, heads: 1, dim: 256, entries: []int{41}, own: true},
		{name: "head between widths", rows: 20, heads: 1, dim: 72, entries: []int{67}, own: true},
		{name: "window, evicted", rows: 24, heads: 6, dim: 16, entries: []int{150, 90}, own: true, window: 60, evicted: true},
		{name: "window within the own pairs", rows: 30, heads: 4, dim: 16, entries: []int{70, 20}, own: true, window: 5},
		{name: "sharp logits", rows: 32, heads: 2, dim: 32, entries: []int{90, 90}, own: true, logits: 40, tol: 1e-4},
	}
	rng := rand.New(rand.NewPCG(6, 66))
	for i := range 8 {
		s := attendShape{rows: 1 + rng.IntN(40), dim: 8 * (1 + rng.IntN(16)), own: true, extraWidth: rng.IntN(4)}
		kvHeads := 1 + rng.IntN(3)
		s.heads = kvHeads * (1 + rng.IntN(5))
		s.rows = max(s.rows, 16*kvHeads/s.heads+1)
		for range kvHeads {
			s.entries = append(s.entries, rng.IntN(300))
		}
		s.entries[0]++
		if i%3 == 0 {
			s.window, s.evicted = 1+rng.IntN(200), true
		}
		s.name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/window=%d", i, s.rows, s.heads, s.dim, s.entries, s.window)
		shapes = append(shapes, s)
	}
	// Keys that have much in common, as those of models do: the terms cancel.
	common := attendShape{name: "common keys", rows: 32, heads: 4, dim: 32, entries: []int{500}, own: true}
	for i, s := range append(shapes, common) {
		grad := func(d device, half bool, how int) []output {
			rng := rand.New(rand.NewPCG(5, 6))
			a := s.attend(d, rng)
			if s.name == common.name {
				a.Past[0].K, a.K = shifted(d, a.Past[0].K), shifted(d, a.K)
			}
			a = halved(d, a, half)
			dOut, dScore := s.gradients(d, rng, how != 1, how != 2)
			return s.grad(d, a, dOut, dScore)
		}
		for how, name := range []string{"both", "dLogScore", "dOut"} {
			if how > 0 && i%3 != how-1 {
				continue
			}
			got, want := grad(d, true, how), grad(exact, false, how)
			for j, w := range want {
				compare.Close(t, s.name+", "+name+": "+w.name, got[j].values, w.values, max(s.tol, 3e-5), compare.Floor(w.floor))
			}
			if how == 0 {
				for j, again := range grad(d, true, how) {
					compare.Close(t, s.name+": "+again.name+" again", got[j].values, again.values, 0)
				}
			}
		}
		if i == 0 { // blocks of devices with less shared memory
			want := grad(exact, false, 0)
			for _, shared := range []int{163 << 10, 99 << 10, 64 << 10} {
				restore := kernels.SetShared(d.b, shared)
				for j, got := range grad(d, true, 0) {
					compare.Close(t, fmt.Sprintf("%d bytes of shared memory: %s", shared, got.name), got.values, want[j].values, 3e-5, compare.Floor(want[j].floor))
				}
				restore()
			}
		}
		a := halved(d, s.attend(d, rng), true)
		out, lse, scores := s.observe(d, a)
		dOut, dScore := s.gradients(d, rng, true, true)
		d.b.AttentionGrad(d.garbage(s.rows, s.heads, s.dim), d.garbage(s.rows, len(s.entries), s.dim), d.garbage(s.rows, len(s.entries), s.dim), a, out, lse, scores, dOut, dScore)
		if kernel := fmt.Sprint("grad_past_mma_", max(64, observeWidth(s.dim))); slices.Max(s.entries) > 0 && s.dim <= 128 && !kernels.Launched(d.b, kernel) {
			t.Errorf("%s: %s did not run", s.name, kernel)
		}
	}
}

// shifted adds the same vector to all keys.
func shifted(d device, k *kernels.Tensor) *kernels.Tensor {
	v := k.Float64s()
	for i := range v {
		v[i] += 8 * math.Sin(float64(i%k.Shape[len(k.Shape)-1]))
	}
	return d.tensor(v, k.Shape...)
}
