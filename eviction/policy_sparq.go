package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("sparq", Policy{
		Kind: "decode", Doc: "attends to the entries with the highest scores of the query's largest components", Source: "SparQ (Ribar et al. 2024) §4; rocketkv.txt app. A.3",
		Options: []Option{
			{Name: "components", Default: 0, Min: 0, Max: 1 << 20, Whole: true, Doc: "query components r that estimate; 0 is as many as half the budget reads"},
			{Name: "mean", Default: 1, Min: 0, Max: 1, Whole: true, Doc: "1 gives the attention that is estimated to be missing to the mean value"},
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return sparq{components: s.Int("components"), mean: s.Int("mean") == 1}, nil
		},
	})
}

// sparq keeps everything, and the keys once more with each dimension's numbers
// together. With i₁ the r largest components of |q|, summed over the group, it
// estimates ŝ = softmax(q[i₁]·K[i₁] / √(d·‖q[i₁]‖₁/‖q‖₁)), attends to the entries
// i₂ with the largest ŝ, averaged over the group, and answers α·y + (1−α)·v̄ with
// α = Σ ŝ[i₂] and v̄ the mean of all values. Where even one component of all keys is
// more than half the budget, only the most recent entries are estimated.
type sparq struct {
	full
	components int
	mean       bool
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

func (m sparq) reach(n, _, dim, from, room int) reach {
	start := max(from, n-room)
	r := min(room/(n-start), dim)
	if m.components > 0 {
		r = min(r, m.components)
	}
	return reach{1, start, r, (n - start) * r}
}

func (m sparq) estimate(x *pageIndex, q [][]float32, from, room int) (probabilities [][]float32, start, read int) {
	r := m.reach(len(x.idx), 1, len(q[0]), from, room)
	start, n := r.start, len(x.idx)-r.start
	dims := largestDims(q, r.components)
	probabilities = partialLogits(q, dims, func(i int32) []float32 { return x.lo[i][start:] }, n)
	for _, p := range probabilities {
		softmaxInPlace(p)
	}
	return probabilities, start, r.read
}
