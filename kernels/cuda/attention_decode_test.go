//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestCUDAStepAttention: a decoding step, its softmax and its scores, for all widths of
// heads and numbers of queries of a KV head that the kernels tell apart, for one part and
// for many, ragged, with windows and with sharp logits, over caches in both types.
func TestCUDAStepAttention(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	rng := rand.New(rand.NewPCG(21, 3))
	shapes := []kernelstest.AttendShape{
		{Rows: 1, Heads: 2, Dim: 8, Entries: []int{1, 2}},
		{Rows: 1, Heads: 4, Dim: 64, Entries: []int{257}},
		{Rows: 1, Heads: 8, Dim: 128, Entries: []int{700, 33}},
		{Rows: 1, Heads: 7, Dim: 128, Entries: []int{300}},
		{Rows: 1, Heads: 12, Dim: 96, Entries: []int{31, 520}},
		{Rows: 1, Heads: 9, Dim: 80, Entries: []int{270}},
		{Rows: 1, Heads: 16, Dim: 64, Entries: []int{65, 290}},
		{Rows: 1, Heads: 10, Dim: 256, Entries: []int{64, 260}},
		{Rows: 1, Heads: 3, Dim: 200, Entries: []int{20, 100, 300}},
		{Rows: 1, Heads: 71, Dim: 64, Entries: []int{40}},
		{Rows: 1, Heads: 4, Dim: 64, Entries: []int{1100, 1050}, Window: 130},
		{Rows: 1, Heads: 6, Dim: 128, Entries: []int{500, 60, 90}, Window: 200, Evicted: true},
		{Rows: 1, Heads: 5, Dim: 128, Entries: []int{600}, Logits: 40, Tol: 1e-4},
		{Rows: 1, Heads: 4, Dim: 64, Entries: []int{257, 30}, Logits: 8, SoftCap: 5},
		{Rows: 1, Heads: 4, Dim: 128, Entries: []int{700}, Logits: 8, SoftCap: 5},
		{Rows: 1, Heads: 16, Dim: 256, Entries: []int{600, 290}, Logits: 8, SoftCap: 5, Window: 500},
		{Rows: 1, Heads: 16, Dim: 64, Entries: []int{65, 700}, Sinks: 2},
		{Rows: 1, Heads: 12, Dim: 64, Entries: []int{300, 20}, Logits: 8, SoftCap: 5, Sinks: 1, Window: 90, Evicted: true},
		{Rows: 1, Heads: 4, Dim: 6, Entries: []int{90, 3}, Logits: 8, SoftCap: 5, Sinks: 1},
		{Rows: 1, Heads: 4, Dim: 6, Entries: []int{90, 3}}, // not in pieces of 16 bytes
	}
	for range 8 {
		s := kernelstest.AttendShape{Rows: 1, Dim: 4 * (1 + rng.IntN(40)), ExtraWidth: rng.IntN(3)}
		kvHeads := 1 + rng.IntN(3)
		s.Heads = kvHeads * (1 + rng.IntN(9))
		for range kvHeads {
			s.Entries = append(s.Entries, 1+rng.IntN(600))
		}
		shapes = append(shapes, s)
	}
	for i, s := range shapes {
		seed := rng.Uint64()
		for _, bf16 := range []bool{false, true} {
			name := fmt.Sprintf("%d: heads=%d/dim=%d/entries=%v/window=%d/bf16=%v", i, s.Heads, s.Dim, s.Entries, s.Window, bf16)
			draw := func(d kernelstest.Device, half bool) (out, lse, scores *kernels.Tensor) {
				a := s.Attend(d, rand.New(rand.NewPCG(seed, 1)))
				if bf16 {
					a = kernelstest.Halved(d, a, half)
				}
				out, lse, scores = d.Garbage(1, s.Heads*s.Dim), d.Garbage(s.Heads, 1), d.Garbage(s.Heads, slices.Max(s.Entries)+s.ExtraWidth)
				d.B.Fill(scores, kernelstest.Unwritten)
				d.B.ObserveAttention(out, lse, scores, a)
				return out, lse, scores
			}
			out, lse, scores := draw(d, true)
			wantOut, wantLSE, wantScores := draw(exact, false)
			tol := max(s.Tol, 3e-5)
			compare.Close(t, name+": out", out.Float64s(), wantOut.Float64s(), tol, compare.Floor(kernelstest.Magnitude(wantOut.Float64s())))
			compare.Close(t, name+": lse", lse.Float64s(), wantLSE.Float64s(), tol, compare.Floor(s.Logits+1))
			compare.Close(t, name+": scores", scores.Float64s(), wantScores.Float64s(), tol, compare.Floor(s.Logits+1), compare.EqualInf())
		}
	}
}

// TestCUDAStepOfLargeLogits: eight queries of a KV head, which tensor cores multiply in parts, lose no more of a logit than
// four, which float32 units do.
func TestCUDAStepOfLargeLogits(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	for _, heads := range []int{4, 8} {
		for _, dim := range []int{64, 128} {
			s := kernelstest.AttendShape{Rows: 1, Heads: heads, Dim: dim, Entries: []int{300}, Logits: 100}
			scores := func(d kernelstest.Device, half bool) []float64 {
				a := kernelstest.Halved(d, s.Attend(d, rand.New(rand.NewPCG(5, uint64(dim)))), half)
				out, lse, scores := d.Garbage(1, heads*dim), d.Garbage(heads, 1), d.Garbage(heads, 300)
				d.B.ObserveAttention(out, lse, scores, a)
				return scores.Float64s()
			}
			compare.Close(t, fmt.Sprintf("%d queries of %d", heads, dim), scores(d, true), scores(exact, false), 2e-5, compare.Floor(1))
		}
	}
}
