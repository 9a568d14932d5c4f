package eviction

import (
	"math"

	"glimpse/internal/stats"
)

// Agreement compares two sets of scores of the same prompt, [layer][kvHead][entry]
// (LookaheadKV, arXiv:2603.10899, table 8): recall is the share of the k highest-scoring entries of
// want that are among the k highest of got, tau Kendall's rank correlation τ-b,
// both as means over layers and KV heads. A head whose scores are all alike ranks
// nothing and does not count; where no head counts, as for policies that do not
// score, or nothing was scored because the prompt fits the budget, ok is false.
func Agreement(got, want [][][]float32, k int) (recall, tau float64, ok bool) {
	if got == nil || want == nil {
		return 0, 0, false
	}
	heads := 0
	for l := range want {
		for h := range want[l] {
			t := stats.KendallTau(got[l][h], want[l][h])
			if math.IsNaN(t) {
				continue
			}
			recall += stats.RecallAtK(got[l][h], want[l][h], k)
			tau += t
			heads++
		}
	}
	if heads == 0 {
		return 0, 0, false
	}
	return recall / float64(heads), tau / float64(heads), true
}
