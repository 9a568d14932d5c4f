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

// TestCUDAStepAttention: a decoding step, its softmax and its scores, for all widths of
// heads and numbers of queries of a KV head that the kernels tell apart, for one part and
// for many, ragged, with windows and with sharp logits, over caches in both types.
func TestCUDAStepAttention(t *testing.T) {
	d, exact := openCUDA(t), open(t, "reference64")
	rng := rand.New(rand.NewPCG(21, 3))
	shapes := []attendShape{
		{rows: 1, heads: 2, dim: 8, entries: []int{1, 2}},
		{rows: 1, heads: 4, dim: 64, entries: []int{257}},
		{rows: 1, heads: 8, dim: 128, entries: []int{700, 33}},
		{rows: 1, heads: 7, dim: 128, entries: []int{300}},
		{rows: 1, heads: 12, dim: 96, entries: []int{31, 520}},
		{rows: 1, heads: 9, dim: 80, entries: []int{270}},
		{rows: 1, heads: 16, dim: 64, entries: []int{65, 290}},
		{rows: 1, heads: 10, dim: 256, entries: []int{64, 260}},
		{rows: 1, heads: 3, dim: 200, entries: []int{20, 100, 300}},
		{rows: 1, heads: 71, dim: 64, entries: []int{40}},
		{rows: 1, heads: 4, dim: 64, entries: []int{1100, 1050}, window: 130},
		{rows: 1, heads: 6, dim: 128, entries: []int{500, 60, 90}, window: 200, evicted: true},
		{rows: 1, heads: 5, dim: 128, entries: []int{600}, logits: 40, tol: 1e-4},
		{rows: 1, heads: 4, dim: 6, entries: []int{90, 3}}, // not in pieces of 16 bytes
	}
	for range 8 {
		s := attendShape{rows: 1, dim: 4 * (1 + rng.IntN(40)), extraWidth: rng.IntN(3)}
		kvHeads := 1 + rng.IntN(3)
		s.heads = kvHeads * (1 + rng.IntN(9))
		for range kvHeads {
			s.entries = append(s.entries, 1+rng.IntN(600))
		}
		shapes = append(shapes, s)
	}
	for i, s := range shapes {
		seed := rng.Uint64()
		for _, bf16 := range []bool{false, true} {
			name := fmt.Sprintf("%d: heads=%d/dim=%d/entries=%v/window=%d/bf16=%v", i, s.heads, s.dim, s.entries, s.window, bf16)
			draw := func(d device, half bool) (out, lse, scores *kernels.Tensor) {
				a := s.attend(d, rand.New(rand.NewPCG(seed, 1)))
				if bf16 {
					a = halved(d, a, half)
				}
				out, lse, scores = d.garbage(1, s.heads*s.dim), d.garbage(s.heads, 1), d.garbage(s.heads, slices.Max(s.entries)+s.extraWidth)
				d.b.Fill(scores, unwritten)
				d.b.ObserveAttention(out, lse, scores, a)
				return out, lse, scores
			}
			out, lse, scores := draw(d, true)
			wantOut, wantLSE, wantScores := draw(exact, false)
			tol := max(s.tol, 3e-5)
			compare.Close(t, name+": out", out.Float64s(), wantOut.Float64s(), tol, compare.Floor(magnitude(wantOut.Float64s())))
			compare.Close(t, name+": lse", lse.Float64s(), wantLSE.Float64s(), tol, compare.Floor(s.logits+1))
			compare.Close(t, name+": scores", scores.Float64s(), wantScores.Float64s(), tol, compare.Floor(s.logits+1), compare.EqualInf())
		}
	}
}
