package kernels

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// sortedTopK is TopK by definition: a stable sort.
func sortedTopK(scores []float32, k int) []int32 {
	order := make([]int32, len(scores))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(rank(scores[b]), rank(scores[a])) })
	order = order[:max(0, min(k, len(order)))]
	slices.Sort(order)
	return order
}

func TestTopK(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	cases := map[string][]float32{
		"empty":     {},
		"one":       {3},
		"plateau":   {1, 2, 2, 2, 1, 2},
		"all equal": {5, 5, 5, 5, 5},
		"NaN":       {nan, 1, nan, 2, float32(math.Inf(-1))},
		"infinite":  {inf, 1, float32(math.Inf(-1)), inf, -3},
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 200 {
		x := make([]float32, rng.IntN(300))
		for j := range x {
			x[j] = float32(rng.IntN(1 + i)) // many ties at first, few later
		}
		cases[fmt.Sprint("random ", i)] = x
	}
	for name, x := range cases {
		for _, k := range []int{-1, 0, 1, 2, 3, len(x) / 2, len(x) - 1, len(x), len(x) + 5} {
			before := slices.Clone(x)
			if got, want := TopK(x, k), sortedTopK(x, k); !slices.Equal(got, want) {
				t.Fatalf("%s: TopK(%v, %d) = %v, want %v", name, x, k, got, want)
			}
			if !slices.EqualFunc(x, before, func(a, b float32) bool { return rank(a) == rank(b) }) {
				t.Fatalf("%s: TopK changed its input", name)
			}
		}
	}
}

func TestMaxPool(t *testing.T) {
	src := []float32{1, 5, 2, 0, 0, 3, -1}
	for kernel, want := range map[int][]float32{1: src, 3: {5, 5, 5, 2, 3, 3, 3}, 7: {5, 5, 5, 5, 5, 3, 3}} {
		dst := make([]float32, len(src))
		MaxPool(dst, src, kernel)
		if !slices.Equal(dst, want) {
			t.Errorf("MaxPool kernel %d = %v, want %v", kernel, dst, want)
		}
	}
}
