package kernelstest

import (
	"math/rand/v2"
	"testing"

	"glimpse/kernels"
)

// SelectorTests hold a Selector against a second implementation of every operation.
var SelectorTests = map[string]func(t *testing.T, d Device, sel kernels.Selector){
	"AttentionVariances": testAttentionVariances,
	"Compact":            testCompact,
	"MeanScores":         testMeanScores,
	"MergeEvicted":       testMergeEvicted,
	"MergeRecent":        testMergeRecent,
	"MergeRows":          testMergeRows,
	"MergeStep":          testMergeStep,
	"Moments":            testMoments,
	"PoolScores":         testPoolScores,
	"Scores":             testScores,
	"Select":             testSelect,
	"SelectSpread":       testSelectSpread,
	"ShareBudget":        testShareBudget,
	"SparseEstimate":     testSparseEstimate,
	"SparseMean":         testSparseMean,
	"SparseSelect":       testSparseSelect,
	"Sums":               testSums,
}

// SomeEntries is Ragged with at least one entry in each head.
func SomeEntries(rng *rand.Rand, most int) []int {
	entries := Ragged(rng, most-1)
	for h := range entries {
		entries[h]++
	}
	return entries
}

// Elements is the number of elements of a shape.
func Elements(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}
