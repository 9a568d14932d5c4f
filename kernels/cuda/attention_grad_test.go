//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// TestCUDAGradHalf: the gradient over caches in bf16 is as exact as over float32, on
// tensor cores, for all upstream gradients, tails, groups and windows; and the same twice.
func TestCUDAGradHalf(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	shapes := []kernelstest.AttendShape{
		{Name: "a group of 128 queries", Rows: 32, Heads: 4, Dim: 128, Entries: []int{333}, Own: true},
		{Name: "ragged, several splits", Rows: 32, Heads: 4, Dim: 64, Entries: []int{701, 130}, Own: true, ExtraWidth: 3},
		{Name: "fewest queries", Rows: 16, Heads: 1, Dim: 8, Entries: []int{1}, Own: true},
		{Name: "tail of queries", Rows: 17, Heads: 1, Dim: 40, Entries: []int{65}, Own: true},
		{Name: "two warps of queries", Rows: 31, Heads: 1, Dim: 16, Entries: []int{97}, Own: true},
		{Name: "one past empty", Rows: 9, Heads: 4, Dim: 80, Entries: []int{0, 44}, Own: true},
		{Name: "heads too wide for it", Rows: 17, Heads: 1, Dim: 256, Entries: []int{41}, Own: true},
		{Name: "head between widths", Rows: 20, Heads: 1, Dim: 72, Entries: []int{67}, Own: true},
		{Name: "window, evicted", Rows: 24, Heads: 6, Dim: 16, Entries: []int{150, 90}, Own: true, Window: 60, Evicted: true},
		{Name: "window within the own pairs", Rows: 30, Heads: 4, Dim: 16, Entries: []int{70, 20}, Own: true, Window: 5},
		{Name: "sharp logits", Rows: 32, Heads: 2, Dim: 32, Entries: []int{90, 90}, Own: true, Logits: 40, Tol: 1e-4},
		{Name: "softmax of logits far below zero", Rows: 2, Heads: 64, Dim: 8, Entries: []int{1}, Own: true, Logits: 400, Tol: 1e-3},
	}
	rng := rand.New(rand.NewPCG(6, 66))
	for i := range 8 {
		s := kernelstest.AttendShape{Rows: 1 + rng.IntN(40), Dim: 8 * (1 + rng.IntN(16)), Own: true, ExtraWidth: rng.IntN(4)}
		kvHeads := 1 + rng.IntN(3)
		s.Heads = kvHeads * (1 + rng.IntN(5))
		s.Rows = max(s.Rows, 16*kvHeads/s.Heads+1)
		for range kvHeads {
			s.Entries = append(s.Entries, rng.IntN(300))
		}
		s.Entries[0]++
		if i%3 == 0 {
			s.Window, s.Evicted = 1+rng.IntN(200), true
		}
		s.Name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/window=%d", i, s.Rows, s.Heads, s.Dim, s.Entries, s.Window)
		shapes = append(shapes, s)
	}
	// Keys that have much in common, as those of models do: the terms cancel.
	common := kernelstest.AttendShape{Name: "common keys", Rows: 32, Heads: 4, Dim: 32, Entries: []int{500}, Own: true}
	for i, s := range append(shapes, common) {
		grad := func(d kernelstest.Device, half bool, how int) []kernelstest.Output {
			rng := rand.New(rand.NewPCG(5, 6))
			a := s.Attend(d, rng)
			if s.Name == common.Name {
				a.Past[0].K, a.K = shifted(d, a.Past[0].K), shifted(d, a.K)
			}
			a = kernelstest.Halved(d, a, half)
			dOut, dScore := s.Gradients(d, rng, how != 1, how != 2)
			return s.Grad(d, a, dOut, dScore)
		}
		for how, name := range []string{"both", "dLogScore", "dOut"} {
			if how > 0 && i%3 != how-1 {
				continue
			}
			got, want := grad(d, true, how), grad(exact, false, how)
			for j, w := range want {
				compare.Close(t, s.Name+", "+name+": "+w.Name, got[j].Values, w.Values, max(s.Tol, 3e-5), compare.Floor(w.Floor))
			}
			if how == 0 {
				for j, again := range grad(d, true, how) {
					compare.Close(t, s.Name+": "+again.Name+" again", got[j].Values, again.Values, 0)
				}
			}
		}
		if i == 0 { // blocks of devices with less shared memory
			want := grad(exact, false, 0)
			for _, shared := range []int{163 << 10, 99 << 10, 64 << 10} {
				restore := cuda.SetShared(d.B, shared)
				for j, got := range grad(d, true, 0) {
					compare.Close(t, fmt.Sprintf("%d bytes of shared memory: %s", shared, got.Name), got.Values, want[j].Values, 3e-5, compare.Floor(want[j].Floor))
				}
				restore()
			}
		}
		a := kernelstest.Halved(d, s.Attend(d, rng), true)
		out, lse, scores := s.Observe(d, a)
		dOut, dScore := s.Gradients(d, rng, true, true)
		d.B.AttentionGrad(d.Garbage(s.Rows, s.Heads, s.Dim), d.Garbage(s.Rows, len(s.Entries), s.Dim), d.Garbage(s.Rows, len(s.Entries), s.Dim), a, out, lse, scores, dOut, dScore)
		if kernel := fmt.Sprint("grad_past_mma_", max(64, observeWidth(s.Dim))); slices.Max(s.Entries) > 0 && s.Dim <= 128 && !cuda.Launched(d.B, kernel) {
			t.Errorf("%s: %s did not run", s.Name, kernel)
		}
	}
}

// shifted adds the same vector to all keys.
func shifted(d kernelstest.Device, k *kernels.Tensor) *kernels.Tensor {
	v := k.Float64s()
	for i := range v {
		v[i] += 8 * math.Sin(float64(i%k.Shape[len(k.Shape)-1]))
	}
	return d.Tensor(v, k.Shape...)
}
