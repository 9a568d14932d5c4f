package eviction

import "glimpse/kernels"

func init() {
	Policies.Add("quest", Policy{
		Kind: "decode", Doc: "attends to the pages of keys with the highest upper bounds of attention", Source: "Quest (Tang et al. 2024, arXiv:2406.10774) §3.3; RocketKV (Behnam et al. 2025, arXiv:2502.14051) app. A.3",
		Options: []Option{
			{Name: "page", Default: 16, Min: 1, Max: 1 << 20, Whole: true, Doc: "entries per page; doubled until the bounds of all pages fit half the budget"},
			{Name: "dense", Default: 0, Min: 0, Max: 1 << 20, Whole: true, Doc: "first layers left dense: none, as RocketKV's comparison has it for Llama and Mistral; Quest's authors leave 2"},
		},
		New: func(s Settings) (Method, error) {
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
type quest struct{ page, dense int }

func (m quest) Plan(p Prompt) Plan {
	return sparse(p, func(s *Session) SparseState { return NewSparsePages(s, m, min(m.dense, s.Cache.Layers()), m.page, 2) })
}

func (quest) How() kernels.Estimate { return kernels.EstimateBound }

func (quest) Reach(s Sight, room, want int) Reach {
	r := Reach{Size: s.Size, Start: s.From, Components: s.Dim}
	last := func() int { return (s.N - 1) / r.Size } // page
	for 2*s.Dim*(last()-s.From/r.Size) > room {
		r.Size *= 2
	}
	r.End = last() * r.Size
	r.Recent = min(want, s.N-r.End)
	if r.End <= s.From { // the last page is all that is seen
		r.End, r.Recent = s.N, want
	}
	return r
}
