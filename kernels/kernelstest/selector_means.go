package kernelstest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// testMeanScores: every row becomes the mean of those it is one of, as scores or as
// logarithms.
func testMeanScores(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(20, 61) {
		heads, layers, n := 1+rng.IntN(4), 1+rng.IntN(3), 1+rng.IntN([]int{4, 90, 700}[seed%3])
		width, logarithms := n+rng.IntN(3), seed%2 == 1
		values := Random(rng, layers*heads*width, 3)
		scores := d.Stored(kernels.F32, values, layers*heads, width)
		entries := slices.Repeat([]int{n}, layers*heads)
		before := RowsOf(scores, entries)
		sel.MeanScores(scores, entries, heads, logarithms)
		after := RowsOf(scores, entries)
		for h := range entries {
			want := make([]float64, n)
			for _, row := range before[h/heads*heads:][:heads] {
				for j, v := range row {
					if logarithms {
						want[j] += math.Exp(float64(v)) / float64(heads)
					} else {
						want[j] += float64(v) / float64(heads)
					}
				}
			}
			for j := range want {
				if logarithms {
					want[j] = math.Log(want[j])
				}
			}
			compare.Close(t, fmt.Sprintf("seed %d: row %d of %d×%d", seed, h, layers, heads), after[h], want, 1e-5, compare.Floor(1))
		}
	}
}

// testMergeScores: the logarithm of the mean over the rows of both observations.
func testMergeScores(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(20, 62) {
		heads, width := 1+rng.IntN(5), 1+rng.IntN(300)
		rowsA, rowsB := 1+rng.IntN(40), 1+rng.IntN(40)
		draw := func() []float64 {
			x := Random(rng, heads*width, 3)
			for i := range x {
				if x[i] -= 6; rng.IntN(15) == 0 {
					x[i] = math.Inf(-1)
				}
			}
			return x
		}
		acc, other := d.Tensor(draw(), heads, width), d.Tensor(draw(), heads, width)
		a, b := acc.Float64s(), other.Float64s()
		want := make([]float64, len(a))
		for i := range want {
			want[i] = math.Log((float64(rowsA)*math.Exp(a[i]) + float64(rowsB)*math.Exp(b[i])) / float64(rowsA+rowsB))
		}
		sel.MergeScores(acc, other, float64(rowsA), float64(rowsB))
		compare.Close(t, fmt.Sprintf("seed %d", seed), acc.Float64s(), want, 1e-5, compare.Floor(1), compare.EqualInf())
	}
}

// testAttentionVariances: of every query head, over the entries that it is given.
func testAttentionVariances(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(20, 63) {
		entries := SomeEntries(rng, []int{4, 90, 700}[seed%3])
		width, rows := slices.Max(entries)+rng.IntN(3), 1+rng.IntN(500)
		log, logs := d.LogScores(rng, entries, 1, width)
		want := make([]float64, len(entries))
		for h, n := range entries {
			mean := 0.0
			for _, l := range logs[h*width:][:n] {
				mean += float64(rows) * math.Exp(l) / float64(n)
			}
			for _, l := range logs[h*width:][:n] {
				dev := float64(rows)*math.Exp(l) - mean
				want[h] += dev * dev / float64(n)
			}
		}
		compare.Close(t, fmt.Sprintf("seed %d: %v entries", seed, entries), sel.AttentionVariances(log, entries, rows), want, 1e-4)
	}
}
