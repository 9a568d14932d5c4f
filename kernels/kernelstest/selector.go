package kernelstest

import (
	"iter"
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
	"MergeScores":        testMergeScores,
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

// seeds are the first n seeds, each with the random numbers of one stream that it gives.
func seeds(n, stream uint64) iter.Seq2[uint64, *rand.Rand] {
	return func(yield func(uint64, *rand.Rand) bool) {
		for seed := range n {
			if !yield(seed, rand.New(rand.NewPCG(seed, stream))) {
				return
			}
		}
	}
}
