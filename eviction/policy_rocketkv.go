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
	out := Compression{R: r, First: math.Pow(c, r)}
	out.Page, out.Head = splitHSA(math.Pow(c, 1-r))
	return out
}

// splitHSA splits the compression of hybrid sparse attention evenly between pages
// and dimensions.
func splitHSA(c float64) (page int, head float64) {
	p := math.Ceil(math.Sqrt(c) - 1e-9)
	return int(p), c / p
}

// rocketkv is two parts: snapkv, whose scores are summed over window and group and
// pooled with kernel 63, evicts the prompt to S/c^r entries, where S is the length
// of prompt and response, c = S/B and r the adaptive split; [hsa] then reads what
// that leaves. So it holds more than B entries and reads as much as B of them.
type rocketkv struct{ snapkv }

// splitPrompt is the split for a prompt, and the entries that its first stage keeps.
func splitPrompt(p Prompt) (Compression, int) {
	length := p.Entries + p.MaxNew
	c := SplitCompression(float64(length) / float64(p.Budget))
	return c, max(p.Budget, int(float64(length)/c.First+1e-9))
}

// firstStage is the prompt as snapkv sees it.
func (m rocketkv) firstStage(p Prompt) Prompt {
	_, p.Budget = splitPrompt(p)
	return p
}

func (m rocketkv) Capture(p Prompt) model.Capture { return m.snapkv.Capture(m.firstStage(p)) }

func (m rocketkv) Score(dst [][]float32, p Prompt, o *model.Observation) error {
	return m.snapkv.Score(dst, m.firstStage(p), o)
}

func (m rocketkv) formula(p Prompt, o *model.Observation) (formula, bool) {
	return m.snapkv.formula(m.firstStage(p), o)
}

func (m rocketkv) Protect(p Prompt) (sink, recent int) { return m.snapkv.Protect(m.firstStage(p)) }

// LayerBudgets are what the first stage keeps.
func (m rocketkv) LayerBudgets(p Prompt) []int {
	out := make([]int, p.Config.Layers)
	for l := range out {
		_, out[l] = splitPrompt(p)
	}
	return out
}

func (m rocketkv) StartSparse(s *Session) SparseState {
	c, _ := splitPrompt(s.Prompt)
	return startHSA(s, c.Page, c.Head)
}

func (m rocketkv) layout(s *Session) sparseLayout {
	c, _ := splitPrompt(s.Prompt)
	return sparseLayout{size: c.Page, bounds: 2}
}
