package eviction

import (
	"math"

	"glimpse/model"
)

func init() {
	Policies.Add("rocketkv", Policy{
		Kind: "prefill + decode", Doc: "snapkv with a wide pool keeps more than the budget, hybrid sparse attention reads less than that", Source: "rocketkv.txt §3",
		Options: rocketOptions(32),
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return newRocketKV(s), nil
		},
	})
}

func rocketOptions(window float64) []Option {
	return []Option{
		{Name: "window", Default: window, Min: 1, Max: 1 << 20, Whole: true, Doc: "last prompt rows observed and kept; at most half of what the first stage keeps"},
		kernelOption(63),
	}
}

func newRocketKV(s Settings) rocketkv {
	return rocketkv{snapkv{window: s.Int("window"), kernel: s.Int("kernel")}}
}

// Compression is how RocketKV splits a compression ratio c (rocketkv.txt §3.6).
type Compression struct {
	R     float64 // split factor r = min(0.2 + 0.06·log₂ c, 0.8)
	First float64 // c^r, of the prompt's eviction
	Page  int     // ⌈√c^(1−r)⌉, entries per page of the sparse attention
	Head  float64 // c^(1−r) / Page, of the head's dimensions
}

// SplitCompression splits c, which counts as 1 where it is less.
func SplitCompression(c float64) Compression {
	c = max(1, c)
	r := min(0.2+0.06*math.Log2(c), 0.8)
	second := math.Pow(c, 1-r)
	page := math.Ceil(math.Sqrt(second) - 1e-9)
	return Compression{R: r, First: math.Pow(c, r), Page: int(page), Head: second / page}
}

// rocketkv is two parts: snapkv, whose scores are summed over window and group and
// pooled with kernel 63, evicts the prompt to S/c^r entries, where S is the length
// of prompt and response, c = S/B and r the adaptive split; [hsa] then reads what
// that leaves. So it holds more than B entries and reads as much as B of them.
type rocketkv struct{ snapkv }

// split is the split for a prompt, and the entries that its first stage keeps.
func (m rocketkv) split(p Prompt) (Compression, int) {
	length := p.Entries + p.MaxNew
	c := SplitCompression(float64(length) / float64(p.Budget))
	return c, max(p.Budget, int(float64(length)/c.First+1e-9))
}

// firstStage is the prompt as snapkv sees it.
func (m rocketkv) firstStage(p Prompt) Prompt {
	_, p.Budget = m.split(p)
	return p
}

func (m rocketkv) Capture(p Prompt) model.Capture { return m.snapkv.Capture(m.firstStage(p)) }

func (m rocketkv) Score(dst [][]float32, p Prompt, o *model.Observation) error {
	return m.snapkv.Score(dst, m.firstStage(p), o)
}

func (m rocketkv) Protect(p Prompt) (sink, recent int) { return m.snapkv.Protect(m.firstStage(p)) }

// LayerBudgets are what the first stage keeps.
func (m rocketkv) LayerBudgets(p Prompt) []int {
	out := make([]int, p.Config.Layers)
	for l := range out {
		_, out[l] = m.split(p)
	}
	return out
}

func (m rocketkv) StartSparse(s *Session) SparseState {
	c, _ := m.split(s.Prompt)
	dim := s.Prompt.Config.HeadDim
	return newSparseState(s, hsa{components: max(1, int(float64(dim)/c.Head+1e-9))}, 0, c.Page, 2)
}

// hsa is hybrid sparse attention (rocketkv.txt algorithm 1): i₁ are the k₁
// dimensions with the largest |q|, summed over the group; the sign of the summed
// query picks the page's maximum or minimum in each of them; the softmax of the
// partial products, with the temperature √(d·‖q[i₁]‖₁/‖q‖₁), averaged over the
// group, scores the pages, and the k₂ entries of the best pages are attended to.
type hsa struct{ components int }

func (m hsa) estimate(x *pageIndex, q [][]float32, from, room int) (probabilities [][]float32, start, read int) {
	for x.pages()-from/x.size > room {
		x.double()
	}
	first := from / x.size
	pages := x.pages() - first
	k := min(m.components, len(q[0]), room/pages)
	dims := largest(q, k)
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
	return probabilities, from, pages * k
}
