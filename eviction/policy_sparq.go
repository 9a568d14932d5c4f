package eviction

import "glimpse/kernels"

func init() {
	Policies.Add("sparq", Policy{
		Kind: "decode", Doc: "attends to the entries with the highest scores of the query's largest components", Source: "SparQ (Ribar et al. 2024, arXiv:2312.04985) §4; RocketKV (Behnam et al. 2025, arXiv:2502.14051) app. A.3",
		Options: []Option{
			{Name: "components", Default: 0, Min: 0, Max: 1 << 20, Whole: true, Doc: "query components r that estimate; 0 is as many as half the budget reads"},
			{Name: "mean", Default: 1, Min: 0, Max: 1, Whole: true, Doc: "1 gives the attention that is estimated to be missing to the mean value"},
			{Name: "local", Default: 0.25, Min: 0, Max: 1, Doc: "share of the entries attended to, beside the current one, that are the most recent ones; the authors' evaluation has a quarter"},
			denseOption,
		},
		New: func(s Settings) (Method, error) {
			return sparq{components: s.Int("components"), mean: s.Int("mean") == 1, local: s.Float("local"), dense: s.Int("dense")}, nil
		},
	})
}

// sparq keeps everything, and the keys once more with each dimension's numbers
// together. With i₁ the r largest components of |q|, summed over the group, it
// estimates ŝ = softmax(q[i₁]·K[i₁] / √(d·‖q[i₁]‖₁/‖q‖₁)), attends to the entries
// i₂ with the largest ŝ, averaged over the group, and answers α·y + (1−α)·v̄ with
// α = Σ ŝ[i₂] and v̄ the mean of all values. The current token and a window before it
// are always among i₂, as in the authors' code (there beside k, here within the budget).
// Where even one component of all keys is more than half the budget, only the most
// recent entries are estimated.
type sparq struct {
	components int
	mean       bool
	local      float64
	dense      int
}

func (m sparq) Plan(p Prompt) Plan {
	return sparse(p, func(s *Session) SparseState {
		st := NewSparsePages(s, m, min(m.dense, s.Cache.Layers()), 1, 1)
		if m.mean {
			st.keepMeans(s.Cache)
		}
		return st
	})
}

func (sparq) How() kernels.Estimate { return kernels.EstimatePartial }

func (m sparq) Reach(s Sight, room, want int) Reach {
	r := Reach{Size: 1, Start: max(s.From, s.N-room), End: s.N}
	seen := s.N - r.Start
	r.Components = min(room/seen, s.Dim)
	if m.components > 0 {
		r.Components = min(r.Components, m.components)
	}
	r.Read = seen * r.Components
	r.Recent = min(1+int(m.local*float64(want-1)), seen)
	return r
}
