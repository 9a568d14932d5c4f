package stats

import (
	"cmp"
	"slices"
)

// Holm adjusts p-values of several tests so that the chance of any false positive among
// them is at most the level they are compared with (Holm 1979, "A simple sequentially
// rejective multiple test procedure"): the smallest of n times n, the next times n − 1, and
// so on, none below the one before it, none above 1. The result is in the order of p, where NaN is no test
// and stays.
func Holm(p []float64) []float64 {
	var order []int
	for i, v := range p {
		if v == v {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	out := slices.Clone(p)
	before := 0.0
	for rank, i := range order {
		before = max(before, min(1, p[i]*float64(len(order)-rank)))
		out[i] = before
	}
	return out
}
