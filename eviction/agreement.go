package eviction

import (
	"math"

	"glimpse/internal/parallel"
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
	type head struct {
		got, want   []float32
		recall, tau float64
	}
	var heads []head
	for l := range want {
		for h := range want[l] {
			heads = append(heads, head{got: got[l][h], want: want[l][h]})
		}
	}
	parallel.For(len(heads), func(i int) {
		h := &heads[i]
		if h.tau = stats.KendallTau(h.got, h.want); !math.IsNaN(h.tau) {
			h.recall = stats.RecallAtK(h.got, h.want, k)
		}
	})
	ranked := 0
	for _, h := range heads {
		if !math.IsNaN(h.tau) {
			recall += h.recall
			tau += h.tau
			ranked++
		}
	}
	if ranked == 0 {
		return 0, 0, false
	}
	return recall / float64(ranked), tau / float64(ranked), true
}
