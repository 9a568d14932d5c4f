package stats

import (
	"cmp"
	"slices"
)

// Holm adjusts p-values of several tests so that the chance of any false positive among
// them is at most the level they are compared with (Holm 1979, "A simple sequentially
// rejective multiple test procedure"): the smallest of n times n, the next times n − 1, and
// so on, none below the one before it, none above 1. The result is in the order of p.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	out := make([]float64, len(p))
	before := 0.0
	for rank, i := range order {
		before = max(before, min(1, p[i]*float64(len(p)-rank)))
		out[i] = before
	}
	return out
}
