//go:build gpu && linux && amd64

package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// TestCUDAObserveHalf: rows that are observed over caches in bf16 are as exact as over
// float32, output, softmax and scores, with and without own pairs, on tensor cores
// where they are many and where they are few; and the same twice.
func TestCUDAObserveHalf(t *testing.T) {
	d, exact := openCUDA(t), open(t, "reference64")
	var shapes []attendShape
	for _, s := range attendShapes { // the others take the way of float32 caches
		if s.rows > 1 && s.rows < 80 && s.dim%8 == 0 && s.rows*s.heads/len(s.entries) >= 16 && slices.Max(s.entries) < 700 {
			shapes = append(shapes, s)
		}
	}
	shapes = append(shapes,
		attendShape{name: "tiles of entries and rows", rows: 33, heads: 4, dim: 64, entries: []int{301, 128}, own: true},
		attendShape{name: "width beyond tiles", rows: 17, heads: 1, dim: 128, entries: []int{129}, extraWidth: 3},
		attendShape{name: "widest head", rows: 16, heads: 1, dim: 256, entries: []int{70}, own: true},
		attendShape{name: "prompt's last rows", rows: 32, heads: 4, dim: 16, entries: []int{400}},
		attendShape{name: "entries that the first rows do not see", rows: 100, heads: 2, dim: 16, entries: []int{300, 120}},
		attendShape{name: "splits", rows: 32, heads: 2, dim: 8, entries: []int{900, 40}, own: true, window: 300, evicted: true},
	)
	rng := rand.New(rand.NewPCG(4, 44))
	for i := range 6 {
		s := attendShape{rows: 16 + rng.IntN(30), dim: 8 * (1 + rng.IntN(12)), own: rng.IntN(2) == 0, extraWidth: rng.IntN(4)}
		kvHeads := 1 + rng.IntN(3)
		s.heads = kvHeads * (1 + rng.IntN(5))
		for range kvHeads {
			n := rng.IntN(300)
			if !s.own {
				n += s.rows
			}
			s.entries = append(s.entries, n)
		}
		if i%3 == 0 {
			s.window, s.evicted = 1+rng.IntN(200), true
		}
		s.name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/own=%v/window=%d", i, s.rows, s.heads, s.dim, s.entries, s.own, s.window)
		shapes = append(shapes, s)
	}
	ran, due := 0, 0
	for _, s := range shapes {
		tol := max(s.tol, 3e-5)
		if slices.Max(s.entries) > 0 {
			due += 3
		}
		observe := func(d device, bf16, values bool) (outs []*kernels.Tensor) {
			a := halved(d, s.attend(d, rand.New(rand.NewPCG(5, 6))), bf16)
			var out *kernels.Tensor
			if values {
				out = d.garbage(s.rows, s.heads*s.dim)
			} else {
				a.V = nil
			}
			lse, scores := d.garbage(s.heads, s.rows), d.garbage(s.heads, max(slices.Max(s.entries), 1)+s.extraWidth)
			d.b.Fill(scores, unwritten)
			d.b.ObserveAttention(out, lse, scores, a)
			if bf16 && kernels.Launched(d.b, fmt.Sprint("observe_scores_", observeWidth(s.dim))) {
				ran++
			}
			if values {
				outs = append(outs, out)
			}
			return append(outs, lse, scores)
		}
		got, again, want, without := observe(d, true, true), observe(d, true, true), observe(exact, false, true), observe(d, true, false)
		for i, name := range []string{"out", "lse", "scores"} {
			floor := compare.Floor(s.logits + 1)
			if i == 0 {
				floor = compare.Floor(magnitude(want[0].Float64s()))
			} else {
				compare.Close(t, s.name+": "+name+" without an output", without[i-1].Float64s(), got[i].Float64s(), 0, compare.EqualInf())
			}
			compare.Close(t, s.name+": "+name, got[i].Float64s(), want[i].Float64s(), tol, floor, compare.EqualInf())
			compare.Close(t, s.name+": "+name+" again", again[i].Float64s(), got[i].Float64s(), 0, compare.EqualInf())
		}
	}
	if ran != due {
		t.Errorf("scores came from tensor cores %d times, want %d", ran, due)
	}
}

// observeWidth is the width of the kernels for heads of dim elements.
func observeWidth(dim int) int {
	width := 64
	for width < dim {
		width *= 2
	}
	return width
}
