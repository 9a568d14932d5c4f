package eviction

import (
	"math"

	"glimpse/model"
)

func init() {
	Policies.Add("quest", Policy{
		Kind: "decode", Doc: "attends to the pages of keys with the highest upper bounds of attention", Source: "Quest (Tang et al. 2024) §3.3; rocketkv.txt app. A.3",
		Options: []Option{
			{Name: "page", Default: 16, Min: 1, Max: 1 << 20, Whole: true, Doc: "entries per page; doubled until the bounds of all pages fit half the budget"},
			{Name: "dense", Default: -1, Min: -1, Max: 1 << 20, Whole: true, Doc: "first layers left dense; -1 is 2 in models of 8 layers or more"},
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return quest{page: s.Int("page"), dense: s.Int("dense")}, nil
		},
	})
}

// quest keeps everything and reads some of it. The keys of a page lie between the
// element-wise minimum m and maximum M of the page, so that Σ_i max(q_i·m_i,
// q_i·M_i) bounds the product of a query with any of them. Pages are chosen by the
// softmax of that bound, averaged over the heads of the group.
type quest struct {
	full
	page, dense int
}

func (m quest) StartSparse(s *Session) SparseState {
	return newSparseState(s, m, denseLayers(m.dense, 2, s.Cache.Layers()), m.page, 2)
}

func (quest) estimate(x *pageIndex, q [][]float64, from, room int) (probabilities [][]float64, start, read int) {
	dim := len(q[0])
	for 2*dim*(x.pages()-from/x.size) > room {
		x.double()
	}
	first := from / x.size
	pages := x.pages() - first
	for _, query := range q {
		bound := make([]float64, pages)
		for i, v := range query {
			v /= math.Sqrt(float64(dim))
			lo, hi := x.lo[i][first:], x.hi[i][first:]
			for p := range bound {
				bound[p] += max(v*float64(lo[p]), v*float64(hi[p]))
			}
		}
		softmaxInPlace(bound)
		probabilities = append(probabilities, bound)
	}
	return probabilities, from, 2 * dim * pages
}
