package eviction

// upTo are the indices [from, to).
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
