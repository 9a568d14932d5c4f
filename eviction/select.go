package eviction

import (
	"slices"

	"glimpse/kernels"
)

// selectHead returns the ascending indices that a KV head with the given scores
// keeps: the first sink, the last recent, and the highest-scoring of the others
// up to budget entries in all.
func selectHead(scores []float32, budget, sink, recent int) []int32 {
	n := len(scores)
	if n <= budget {
		return upTo(0, n)
	}
	sink = min(sink, budget)
	recent = min(recent, budget-sink)
	keep := upTo(0, sink)
	for _, j := range kernels.TopK(scores[sink:n-recent], budget-sink-recent) {
		keep = append(keep, j+int32(sink))
	}
	return append(keep, upTo(n-recent, n)...)
}

func upTo(from, to int) []int32 {
	out := make([]int32, 0, to)
	for j := from; j < to; j++ {
		out = append(out, int32(j))
	}
	return out
}

// layerBudget is a layer's budget, and what is protected in it.
func layerBudget(m Method, p Prompt, layer int) (budget, sink, recent int) {
	budget = p.Budget
	if a, ok := m.(LayerAllocator); ok {
		budget = a.LayerBudgets(p)[layer]
	}
	if pr, ok := m.(Protector); ok {
		sink, recent = pr.Protect(p)
	}
	return budget, sink, recent
}

// selectLayer selects for every KV head of a layer.
func selectLayer(m Method, p Prompt, layer int, scores [][]float32) [][]int32 {
	budget, sink, recent := layerBudget(m, p, layer)
	budgets := slices.Repeat([]int{budget}, len(scores))
	if a, ok := m.(HeadAllocator); ok {
		budgets = a.HeadBudgets(p, layer, budget, scores)
	}
	keep := make([][]int32, len(scores))
	for h, s := range scores {
		keep[h] = selectHead(s, budgets[h], sink, recent)
	}
	return keep
}

// HitRate is the critical-KV hit rate (Judge Q, arXiv:2509.10798, eq. 6): the mean over layers
// and KV heads of |kept ∩ critical| / |critical|, where critical are the oracle's
// choices under the same budget.
func HitRate(kept, critical [][][]int32) float64 {
	sum, heads := 0.0, 0
	for l := range critical {
		for h, want := range critical[l] {
			hits, i := 0, 0
			for _, j := range want {
				for i < len(kept[l][h]) && kept[l][h][i] < j {
					i++
				}
				if i < len(kept[l][h]) && kept[l][h][i] == j {
					hits++
				}
			}
			if len(want) > 0 {
				sum += float64(hits) / float64(len(want))
				heads++
			}
		}
	}
	return sum / float64(max(1, heads))
}
