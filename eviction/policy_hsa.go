package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("hsa", Policy{
		Kind: "decode", Doc: "hybrid sparse attention: bounds of pages in the query's largest dimensions choose the entries", Source: "rocketkv.txt §3.4, algorithm 1, app. B.1.1",
		New: func(Settings, model.Adapter) (Method, error) { return hsa{}, nil },
	})
}

// hsa is rocketkv's second stage alone, or after another first stage: what is left
// of the compression is split evenly between pages of ⌈√c⌉ entries and the head's
// dimensions.
type hsa struct{ full }

func (m hsa) StartSparse(s *Session) SparseState {
	page, head := m.split(s)
	return startHSA(s, page, head)
}

// split is the page and the compression of the head's dimensions.
func (hsa) split(s *Session) (page int, head float64) {
	c := max(1, float64(s.Prompt.Entries+s.Prompt.MaxNew)/float64(s.Prompt.Budget))
	if s.second != nil {
		split, _ := splitPrompt(s.Prompt)
		c /= split.First
	}
	return splitHSA(c)
}

func (m hsa) layout(s *Session) sparseLayout {
	page, _ := m.split(s)
	return sparseLayout{size: page, bounds: 2}
}

func startHSA(s *Session, page int, head float64) SparseState {
	dim := s.Prompt.Config.HeadDim
	return startSparse(s, hsaEstimator{components: max(1, int(float64(dim)/head+1e-9))}, 0, page, 2)
}

// hsaEstimator is hybrid sparse attention (rocketkv.txt algorithm 1): i₁ are the k₁
// dimensions with the largest |q|, summed over the group; the sign of the summed
// query picks the page's maximum or minimum in each of them; the softmax of the
// partial products, with the temperature √(d·‖q[i₁]‖₁/‖q‖₁), averaged over the
// group, scores the pages, and the k₂ entries of the best pages are attended to.
type hsaEstimator struct{ components int }

func (hsaEstimator) onDevice() kernels.Estimate { return kernels.EstimateSigned }

func (m hsaEstimator) reach(n, size, dim, from, room int) reach {
	for pagesOf(n, size, from) > room {
		size *= 2
	}
	pages := pagesOf(n, size, from)
	k := min(m.components, dim, room/pages)
	return reach{size, from, k, pages * k}
}

func (m hsaEstimator) estimate(x *pageIndex, q [][]float32, from, room int) (probabilities [][]float32, start, read int) {
	r := m.reach(len(x.idx), x.size, len(q[0]), from, room)
	for x.size < r.size {
		x.double()
	}
	first, k := from/x.size, r.components
	pages := x.pages() - first
	dims := largestDims(q, k)
	probabilities = partialLogits(q, dims, func(i int32) []float32 {
		sum := 0.0
		for _, query := range q {
			sum += float64(query[i])
		}
		if sum >= 0 {
			return x.hi[i][first:]
		}
		return x.lo[i][first:]
	}, pages)
	for _, p := range probabilities {
		softmaxInPlace(p)
	}
	return probabilities, from, r.read
}
