package stats

import (
	"fmt"
	"math"
	"slices"
)

// KendallTau returns Kendall's rank correlation τ-b of two score vectors over
// the same items: (concordant − discordant pairs) / √((pairs untied in a) · (pairs
// untied in b)), in [−1, 1]. It is NaN where it is undefined: if either vector is
// constant, shorter than two, or contains a NaN. It panics if the lengths differ.
//
// Discordant pairs are counted as the exchanges of a merge sort, O(n log n)
// (Knight 1966, "A computer method for calculating Kendall's tau with ungrouped
// data").
func KendallTau(a, b []float32) float64 {
	if len(a) != len(b) {
		panic(fmt.Sprintf("stats: Kendall's tau of %d and %d scores", len(a), len(b)))
	}
	pairs := make([]uint64, len(a)) // a's keys above b's
	for i := range a {
		if a[i] != a[i] || b[i] != b[i] {
			return math.NaN()
		}
		pairs[i] = uint64(sortKey(a[i]))<<32 | uint64(sortKey(b[i]))
	}
	slices.Sort(pairs)
	tiedA := tiedPairs(pairs, func(x, y uint64) bool { return x>>32 == y>>32 })
	tiedBoth := tiedPairs(pairs, func(x, y uint64) bool { return x == y })

	ys := make([]uint32, len(pairs))
	for i, p := range pairs {
		ys[i] = uint32(p)
	}
	discordant := exchanges(ys, make([]uint32, len(ys))) // sorts ys
	tiedB := tiedPairs(ys, func(x, y uint32) bool { return x == y })

	n := int64(len(a))
	all := n * (n - 1) / 2
	untiedA, untiedB := all-tiedA, all-tiedB
	if untiedA == 0 || untiedB == 0 {
		return math.NaN()
	}
	// Pairs tied in a or b are neither concordant nor discordant.
	concordant := all - tiedA - tiedB + tiedBoth - discordant
	// The product of the two counts may exceed an int64, but not a float64.
	return float64(concordant-discordant) / math.Sqrt(float64(untiedA)*float64(untiedB))
}

// sortKey maps scores to integers in their order, which sort faster: equal ones, as 0 and −0, have
// equal keys. NaN has none.
func sortKey(score float32) uint32 {
	bits := math.Float32bits(score)
	switch {
	case score == 0:
		return 1 << 31
	case score < 0:
		return ^bits
	default:
		return bits | 1<<31
	}
}

// tiedPairs counts the pairs within runs of equal neighbours.
func tiedPairs[T any](sorted []T, equal func(x, y T) bool) int64 {
	var ties, run int64
	for i := 1; i < len(sorted); i++ {
		if equal(sorted[i-1], sorted[i]) {
			run++
			ties += run
		} else {
			run = 0
		}
	}
	return ties
}

// exchanges sorts x with a merge sort and returns the number of pairs i < j with
// x[i] > x[j]. tmp is scratch space of the same length.
func exchanges(x, tmp []uint32) int64 {
	if len(x) < 2 {
		return 0
	}
	mid := len(x) / 2
	count := exchanges(x[:mid], tmp[:mid]) + exchanges(x[mid:], tmp[mid:])
	copy(tmp, x)
	left, right := tmp[:mid], tmp[mid:]
	for i := range x {
		if len(right) == 0 || len(left) > 0 && left[0] <= right[0] {
			x[i], left = left[0], left[1:]
		} else {
			x[i], right = right[0], right[1:]
			count += int64(len(left))
		}
	}
	return count
}
