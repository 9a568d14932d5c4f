package eviction

import "glimpse/kernels"

func init() {
	Policies.Add("hsa", Policy{
		Kind: "decode", Doc: "hybrid sparse attention: bounds of pages in the query's largest dimensions choose the entries", Source: "RocketKV (Behnam et al. 2025, arXiv:2502.14051) §3.4, algorithm 1, app. B.1.1",
		Options: []Option{denseOption},
		New:     func(s Settings) (Method, error) { return hsa{dense: s.Int("dense")}, nil },
	})
}

// hsa is rocketkv's second stage alone, or after another first stage: what is left
// of the compression c = S/B is split evenly between pages of ⌈√c⌉ entries and the
// head's dimensions. S is the length of the prompt and of the longest response (the run's
// --max-new), as for rocketkv.
type hsa struct{ dense int }

func (m hsa) Plan(p Prompt) Plan {
	return sparse(p, func(s *Session) SparseState {
		page, head := m.pageAndHead(s)
		return startHSA(s, m.dense, page, head)
	})
}

// pageAndHead is the page and the compression of the head's dimensions.
func (hsa) pageAndHead(s *Session) (page int, head float64) {
	c := max(1, float64(s.Prompt.length())/float64(s.Prompt.Budget))
	if s.policy.Second != nil {
		split, _ := splitPrompt(s.Prompt, adaptiveSplit)
		c /= split.First
	}
	return splitHSA(c)
}

func startHSA(s *Session, dense, page int, head float64) SparseState {
	dim := s.Prompt.Config.HeadDim
	return NewSparsePages(s, hsaEstimator{components: max(1, int(float64(dim)/head+1e-9))}, min(dense, s.Cache.Layers()), page, 2)
}

// hsaEstimator is hybrid sparse attention (RocketKV, arXiv:2502.14051, algorithm 1): i₁ are the k₁
// dimensions with the largest |q|, summed over the group; the sign of the summed
// query picks the page's maximum or minimum in each of them; the softmax of the
// partial products, with the temperature √(d·‖q[i₁]‖₁/‖q‖₁), averaged over the
// group, scores the pages, and the k₂ entries of the best pages are attended to.
//
// k₁ is fixed: half of the budget pays for it at the response's full length. So it
// stays the same while decoding; only a response that gets longer shrinks it.
type hsaEstimator struct{ components int }

func (hsaEstimator) How() kernels.Estimate { return kernels.EstimateSigned }

func (m hsaEstimator) Reach(s Sight, room, _ int) Reach {
	most := func() int { return pagesOf(s.Most, s.Size, 0) }
	if s.From > 0 { // a window slides over one page more than it fills
		most = func() int { return (s.N-s.From+s.Size-1)/s.Size + 1 }
	}
	for most() > room {
		s.Size *= 2
	}
	k := min(m.components, s.Dim, room/most())
	return Reach{Size: s.Size, Start: s.From, End: s.N, Components: k, Read: pagesOf(s.N, s.Size, s.From) * k}
}
