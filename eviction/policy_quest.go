package eviction

import (
	"math"

	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("quest", Policy{
		Kind: "decode", Doc: "attends to the pages of keys with the highest upper bounds of attention", Source: "Quest (Tang et al. 2024, arXiv:2406.10774) §3.3; RocketKV (Behnam et al. 2025, arXiv:2502.14051) app. A.3",
		Options: []Option{
			{Name: "page", Default: 16, Min: 1, Max: 1 << 20, Whole: true, Doc: "entries per page; doubled until the bounds of all pages fit half the budget"},
			{Name: "dense", Default: 0, Min: 0, Max: 1 << 20, Whole: true, Doc: "first layers left dense: none, as RocketKV's comparison has it for Llama and Mistral; Quest's authors leave 2"},
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return quest{page: s.Int("page"), dense: s.Int("dense")}, nil
		},
	})
}

// quest keeps everything and reads some of it. The keys of a page lie between the
// element-wise minimum m and maximum M of the page, so that Σ_i max(q_i·m_i,
// q_i·M_i) bounds the product of a query with any of them. Pages are chosen by the
// softmax of that bound, averaged over the heads of the group, but for the last page,
// which is always read and so needs no bound: it has the current token's own entry, and
// a step that does not see itself answers nothing. Where it is larger than the entries
// that attention may read, its last ones are read and no other page is.
type quest struct {
	full
	page, dense int
}

func (m quest) StartSparse(s *Session) SparseState {
	l := m.layout(s)
	return startSparse(s, m, l.dense, l.size, l.bounds)
}

func (m quest) layout(s *Session) sparseLayout {
	return sparseLayout{dense: min(m.dense, s.Cache.Layers()), size: m.page, bounds: 2}
}

func (quest) onDevice() kernels.Estimate { return kernels.EstimateBound }

func (quest) reach(s sight, room, want int) reach {
	r := reach{size: s.size, start: s.from, components: s.dim}
	last := func() int { return (s.n - 1) / r.size } // page
	for 2*s.dim*(last()-s.from/r.size) > room {
		r.size *= 2
	}
	r.end = last() * r.size
	r.recent = min(want, s.n-r.end)
	if r.end <= s.from { // the last page is all that is seen
		r.end, r.recent = s.n, want
	}
	return r
}

func (quest) estimate(x *pageIndex, q [][]float32, r reach) (logits [][]float32, read int) {
	dim, first, end := r.components, r.start/x.size, r.end/x.size
	for range q {
		logits = append(logits, make([]float32, end-first))
	}
	scale := float32(1 / math.Sqrt(float64(dim)))
	for i := range dim {
		var minima, maxima bool // read in this dimension
		for g, query := range q {
			v := query[i] * scale
			if v < 0 { // m ≤ M, so the sign tells the larger product
				minima = true
				simd.Axpy(v, x.lo[i][first:end], logits[g])
			} else {
				maxima = true
				simd.Axpy(v, x.hi[i][first:end], logits[g])
			}
		}
		for _, used := range []bool{minima, maxima} {
			if used {
				read += end - first
			}
		}
	}
	return logits, read
}
