package eviction

import (
	"fmt"
	"math"
	"slices"

	"glimpse/internal/parallel"
	"glimpse/internal/stats"
	"glimpse/kernels"
)

// Agreement compares two sets of scores of the same prompt, [layer][kvHead][entry]
// (LookaheadKV, arXiv:2603.10899, table 8): recall has for every k the share of the k highest-scoring
// entries of want that are among the k highest of got, tau is Kendall's rank correlation τ-b,
// both as means over layers and KV heads. A head whose scores are all alike ranks
// nothing and does not count; where no head counts, as for policies that do not
// score, or nothing was scored because the prompt fits the budget, ok is false.
func Agreement(got, want [][][]float32, ks ...int) (recall []float64, tau float64, ok bool) {
	if got == nil || want == nil {
		return nil, 0, false
	}
	type head struct {
		got, want []float32
		recall    []float64
		tau       float64
	}
	var heads []head
	for l := range want {
		for h := range want[l] {
			heads = append(heads, head{got: got[l][h], want: want[l][h]})
		}
	}
	parallel.For(len(heads), func(i int) {
		h := &heads[i]
		if h.tau = stats.KendallTau(h.got, h.want); math.IsNaN(h.tau) {
			return
		}
		for _, k := range ks {
			h.recall = append(h.recall, RecallAtK(h.got, h.want, k))
		}
	})
	ranked := 0
	recall = make([]float64, len(ks))
	for _, h := range heads {
		if !math.IsNaN(h.tau) {
			for i, r := range h.recall {
				recall[i] += r
			}
			tau += h.tau
			ranked++
		}
	}
	if ranked == 0 {
		return nil, 0, false
	}
	for i := range recall {
		recall[i] /= float64(ranked)
	}
	return recall, tau / float64(ranked), true
}

// RecallAtK returns the share of the k highest entries of reference that are
// also among the k highest of scores, in [0, 1], as [kernels.TopK] selects them. A k
// above the number of entries means all of them. It is NaN if k < 1, if there are no
// entries, or if a score is NaN. It panics if the lengths differ.
func RecallAtK(scores, reference []float32, k int) float64 {
	if len(scores) != len(reference) {
		panic(fmt.Sprintf("eviction: recall of %d scores against %d", len(scores), len(reference)))
	}
	isNaN := func(f float32) bool { return f != f }
	k = min(k, len(scores))
	if k < 1 || slices.ContainsFunc(scores, isNaN) || slices.ContainsFunc(reference, isNaN) {
		return math.NaN()
	}
	return float64(common(kernels.TopK(scores, k), kernels.TopK(reference, k))) / float64(k)
}
