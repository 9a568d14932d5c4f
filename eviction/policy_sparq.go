package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("sparq", Policy{
		Kind: "decode", Doc: "attends to the entries with the highest scores of the query's largest components", Source: "SparQ (Ribar et al. 2024, arXiv:2312.04985) §4; RocketKV (Behnam et al. 2025, arXiv:2502.14051) app. A.3",
		Options: []Option{
			{Name: "components", Default: 0, Min: 0, Max: 1 << 20, Whole: true, Doc: "query components r that estimate; 0 is as many as half the budget reads"},
			{Name: "mean", Default: 1, Min: 0, Max: 1, Whole: true, Doc: "1 gives the attention that is estimated to be missing to the mean value"},
			{Name: "local", Default: 0.25, Min: 0, Max: 1, Doc: "share of the entries attended to, beside the current one, that are the most recent ones; the authors' evaluation has a quarter"},
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return sparq{components: s.Int("components"), mean: s.Int("mean") == 1, local: s.Float("local")}, nil
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
	full
	components int
	mean       bool
	local      float64
}

func (m sparq) StartSparse(s *Session) SparseState {
	if d := deviceOf(s.Cache); d != nil {
		st := newDeviceSparse(d, s, m, 0, 1, 1)
		if m.mean {
			st.keepMeans(s.Cache)
		}
		return st
	}
	return m.onHost(s)
}

func (m sparq) onHost(s *Session) SparseState {
	st := newSparseState(s, m, 0, 1, 1)
	if !m.mean {
		return st
	}
	for l := range st.heads {
		means := make([]*meanValue, len(st.heads[l]))
		for h := range means {
			values := s.Cache.View(l)[h].V
			dim := values.Width()
			means[h] = &meanValue{sum: make([]float64, dim)}
			host := values.Float64s()
			for _, j := range st.heads[l][h].idx {
				means[h].add(host[int(j)*dim:][:dim])
			}
		}
		st.mean = append(st.mean, means)
	}
	return st
}

func (sparq) layout(*Session) sparseLayout { return sparseLayout{size: 1, bounds: 1} }

func (sparq) onDevice() kernels.Estimate { return kernels.EstimatePartial }

func (m sparq) reach(s sight, room, want int) reach {
	r := reach{size: 1, start: max(s.from, s.n-room), end: s.n}
	seen := s.n - r.start
	r.components = min(room/seen, s.dim)
	if m.components > 0 {
		r.components = min(r.components, m.components)
	}
	r.read = seen * r.components
	r.recent = min(1+int(m.local*float64(want-1)), seen)
	return r
}

func (sparq) estimate(x *pageIndex, q [][]float32, r reach) (logits [][]float32, read int) {
	dims := largestDims(q, r.components)
	return partialLogits(q, dims, func(i int32) []float32 { return x.lo[i][r.start:r.end] }, r.end-r.start), r.read
}
