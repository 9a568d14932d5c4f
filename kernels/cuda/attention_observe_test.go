//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/cuda"
	"glimpse/kernels/kernelstest"
)

// TestCUDAObserveHalf: rows that are observed over caches in bf16 are as exact as over
// float32, output, softmax and scores, with and without own pairs, on tensor cores
// where they are many and where they are few; and the same twice.
func TestCUDAObserveHalf(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	var shapes []kernelstest.AttendShape
	for _, s := range kernelstest.AttendShapes { // the others take the way of float32 caches
		if s.Rows > 1 && s.Rows < 80 && s.Dim%8 == 0 && s.Rows*s.Heads/len(s.Entries) >= 16 && slices.Max(s.Entries) < 700 {
			shapes = append(shapes, s)
		}
	}
	shapes = append(shapes,
		kernelstest.AttendShape{Name: "tiles of entries and rows", Rows: 33, Heads: 4, Dim: 64, Entries: []int{301, 128}, Own: true},
		kernelstest.AttendShape{Name: "width beyond tiles", Rows: 17, Heads: 1, Dim: 128, Entries: []int{129}, ExtraWidth: 3},
		kernelstest.AttendShape{Name: "sinks", Rows: 33, Heads: 4, Dim: 64, Entries: []int{301, 128}, Own: true, Sinks: 2},
		kernelstest.AttendShape{Name: "widest head", Rows: 16, Heads: 1, Dim: 256, Entries: []int{70}, Own: true},
		kernelstest.AttendShape{Name: "prompt's last rows", Rows: 32, Heads: 4, Dim: 16, Entries: []int{400}},
		kernelstest.AttendShape{Name: "entries that the first rows do not see", Rows: 100, Heads: 2, Dim: 16, Entries: []int{300, 120}},
		kernelstest.AttendShape{Name: "splits", Rows: 32, Heads: 2, Dim: 8, Entries: []int{900, 40}, Own: true, Window: 300, Evicted: true},
	)
	rng := rand.New(rand.NewPCG(4, 44))
	for i := range 6 {
		s := kernelstest.AttendShape{Rows: 16 + rng.IntN(30), Dim: 8 * (1 + rng.IntN(12)), Own: rng.IntN(2) == 0, ExtraWidth: rng.IntN(4)}
		kvHeads := 1 + rng.IntN(3)
		s.Heads = kvHeads * (1 + rng.IntN(5))
		for range kvHeads {
			n := rng.IntN(300)
			if !s.Own {
				n += s.Rows
			}
			s.Entries = append(s.Entries, n)
		}
		if i%3 == 0 {
			s.Window, s.Evicted = 1+rng.IntN(200), true
		}
		s.Name = fmt.Sprintf("random %d: rows=%d/heads=%d/dim=%d/entries=%v/own=%v/window=%d", i, s.Rows, s.Heads, s.Dim, s.Entries, s.Own, s.Window)
		shapes = append(shapes, s)
	}
	ran, due := 0, 0
	for _, s := range shapes {
		tol := max(s.Tol, 3e-5)
		if slices.Max(s.Entries) > 0 {
			due += 3
		}
		observe := func(d kernelstest.Device, bf16, values bool) (outs []*kernels.Tensor) {
			a := kernelstest.Halved(d, s.Attend(d, rand.New(rand.NewPCG(5, 6))), bf16)
			var out *kernels.Tensor
			if values {
				out = d.Garbage(s.Rows, s.Heads*s.Dim)
			} else {
				a.V = nil
			}
			lse, scores := d.Garbage(s.Heads, s.Rows), d.Garbage(s.Heads, max(slices.Max(s.Entries), 1)+s.ExtraWidth)
			d.B.Fill(scores, kernelstest.Unwritten)
			d.B.ObserveAttention(out, lse, scores, a)
			if bf16 && cuda.Launched(d.B, fmt.Sprint("observe_scores_", observeWidth(s.Dim))) {
				ran++
			}
			if values {
				outs = append(outs, out)
			}
			return append(outs, lse, scores)
		}
		got, again, want, without := observe(d, true, true), observe(d, true, true), observe(exact, false, true), observe(d, true, false)
		for i, name := range []string{"out", "lse", "scores"} {
			floor := compare.Floor(s.Logits + 1)
			if i == 0 {
				floor = compare.Floor(kernelstest.Magnitude(want[0].Float64s()))
			} else {
				compare.Close(t, s.Name+": "+name+" without an output", without[i-1].Float64s(), got[i].Float64s(), 0, compare.EqualInf())
			}
			compare.Close(t, s.Name+": "+name, got[i].Float64s(), want[i].Float64s(), tol, floor, compare.EqualInf())
			compare.Close(t, s.Name+": "+name+" again", again[i].Float64s(), got[i].Float64s(), 0, compare.EqualInf())
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
