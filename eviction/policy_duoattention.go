package eviction

import (
	"cmp"
	"slices"
)

func init() {
	Policies.Add("duoattention", Policy{
		Kind: "prefill + decode", Doc: "retrieval heads, by a given pattern, keep everything, the others the first and the most recent entries", Source: "DuoAttention (Xiao et al. 2025, arXiv:2410.10819) §2; RocketKV (Behnam et al. 2025, arXiv:2502.14051) app. A.3",
		Pattern: true,
		Options: []Option{
			{Name: "sink", Default: 128, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries of the streaming heads; 20% of the budget where it is at most twice that"},
			{Name: "recent", Default: 512, Min: 1, Max: 1 << 20, Whole: true, Doc: "last entries of the streaming heads; a budget beyond sink and recent goes to retrieval heads"},
			denseOption,
		},
		New: func(s Settings) (Method, error) {
			return duo{sink: s.Int("sink"), recent: s.Int("recent"), dense: s.Int("dense"), pattern: s.Resources.Pattern}, nil
		},
	})
}

// duo splits the heads by α_lh, the pattern's numbers (DuoAttention §2.2): the largest
// get full attention, the others attend to sinks and recent entries only (§2.3). It has
// as many retrieval heads as the budget allows on average over all heads. Under a budget below
// sink + recent all heads stream (RocketKV, arXiv:2502.14051, app. A.3).
type duo struct {
	sink, recent, dense int
	pattern             *Pattern
}

func (m duo) Plan(p Prompt) Plan {
	sink, recent := m.streaming(p)
	retrieval := m.retrieval(p)
	return Plan{
		Sink: sink, Recent: recent,
		Heads: func(layer, _ int, s *Scores) []int {
			budgets := s.Uniform(sink + recent)
			for h, retrieves := range retrieval[layer] {
				if retrieves {
					budgets[h] = p.Entries
				}
			}
			return budgets
		},
		Decode: func(s *Session) *Decoding {
			return &Decoding{Step: s.streamStep(sink, recent, func(layer, head int) bool { return retrieval[layer][head] })}
		},
	}
}

// streaming is what a streaming head keeps.
func (m duo) streaming(p Prompt) (sink, recent int) {
	if p.Budget >= m.sink+m.recent {
		return m.sink, m.recent
	}
	sink = m.sink
	if p.Budget <= 2*m.sink {
		sink = p.Budget / 5
	}
	return sink, p.Budget - sink
}

// retrieval tells the retrieval heads of a prompt [layer][kvHead]: r of the H heads
// so that r·n + (H−r)·(sink+recent) ≤ H·B, and all of layers that are left whole, which H
// does not count. Equal numbers: the earlier head.
func (m duo) retrieval(p Prompt) [][]bool {
	heads := make([][]bool, p.Config.Layers)
	var order [][2]int
	for l := range heads {
		heads[l] = make([]bool, p.Config.KVHeads)
		for h := range heads[l] {
			if heads[l][h] = !p.decides(l) || p.rank(l) < m.dense; !heads[l][h] {
				order = append(order, [2]int{l, h})
			}
		}
	}
	slices.SortStableFunc(order, func(a, b [2]int) int {
		return cmp.Compare(m.pattern.Heads[b[0]][b[1]], m.pattern.Heads[a[0]][a[1]])
	})
	streaming := m.sink + m.recent
	r := 0
	switch {
	case p.Budget < streaming:
	case p.Entries <= p.Budget:
		r = len(order)
	default:
		r = len(order) * (p.Budget - streaming) / (p.Entries - streaming)
	}
	for _, at := range order[:r] {
		heads[at[0]][at[1]] = true
	}
	return heads
}
