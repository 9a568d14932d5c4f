package eviction

import (
	"math"

	"glimpse/internal/simd"
	"glimpse/kernels"
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
	l := m.layout(s)
	return startSparse(s, m, l.dense, l.size, l.bounds)
}

func (m quest) layout(s *Session) sparseLayout {
	return sparseLayout{dense: denseLayers(m.dense, 2, s.Cache.Layers()), size: m.page, bounds: 2}
}

func (quest) onDevice() kernels.Estimate { return kernels.EstimateBound }

func (quest) reach(n, size, dim, from, room int) reach {
	for 2*dim*pagesOf(n, size, from) > room {
		size *= 2
	}
	return reach{size: size, start: from, components: dim}
}

func (m quest) estimate(x *pageIndex, q [][]float32, from, room int) (probabilities [][]float32, start, read int) {
	dim := len(q[0])
	for size := m.reach(len(x.idx), x.size, dim, from, room).size; x.size < size; {
		x.double()
	}
	first := from / x.size
	pages := x.pages() - first
	for range q {
		probabilities = append(probabilities, make([]float32, pages))
	}
	scale := float32(1 / math.Sqrt(float64(dim)))
	for i := range dim {
		var minima, maxima bool // read in this dimension
		for g, query := range q {
			v := query[i] * scale
			if v < 0 { // m ≤ M, so the sign tells the larger product
				minima = true
				simd.Axpy(v, x.lo[i][first:], probabilities[g])
			} else {
				maxima = true
				simd.Axpy(v, x.hi[i][first:], probabilities[g])
			}
		}
		for _, used := range []bool{minima, maxima} {
			if used {
				read += pages
			}
		}
	}
	for _, p := range probabilities {
		softmaxInPlace(p)
	}
	return probabilities, from, read
}
