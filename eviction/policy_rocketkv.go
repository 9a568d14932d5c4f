package eviction

import (
	"math"
	"slices"
)

func init() {
	Policies.Add("rocketkv", Policy{
		Kind: "prefill + decode", Doc: "snapkv with a wide pool keeps more than the budget, with room for the response of --max-new tokens; hybrid sparse attention reads less than that", Source: "RocketKV (Behnam et al. 2025, arXiv:2502.14051) §3",
		Options: rocketOptions(32),
		New: func(s Settings) (Method, error) {
			return newRocketKV(s), nil
		},
	})
}

func rocketOptions(window float64) []Option {
	return []Option{
		{Name: "window", Default: window, Min: 1, Max: 1 << 20, Whole: true, Doc: "last prompt rows of the turn observed and kept; at most half of what the first stage keeps"},
		kernelOption(63),
		{Name: "split", Default: adaptiveSplit, Min: adaptiveSplit, Max: 1, Doc: "split factor r, the first stage's part of the compression; below 0 it adapts to the compression (app. B.1.2, figure 9: 0.3 to 0.7)"},
		denseOption,
	}
}

// denseOption leaves first layers as they are, beside the budget.
var denseOption = Option{Name: "dense", Default: 0, Min: 0, Max: 1 << 20, Whole: true, Doc: "first layers left whole, on top of the budget (RocketKV, arXiv:2502.14051, app. A.1: 2 for LongChat-7B, none for others)"}

// adaptiveSplit stands for the split factor of RocketKV §3.6.
const adaptiveSplit = -1

func newRocketKV(s Settings) rocketkv {
	return rocketkv{snapkv{window: s.Int("window"), kernel: s.Int("kernel")}, s.Float("split"), s.Int("dense")}
}

// Compression is how RocketKV splits a compression ratio c (arXiv:2502.14051, §3.6).
type Compression struct {
	R     float64 // split factor r, by default min(0.2 + 0.06·log₂ c, 0.8)
	First float64 // c^r, of the prompt's eviction
	Page  int     // ⌈√c^(1−r)⌉, entries per page of the sparse attention; 1 where c^(1−r) < 2
	Head  float64 // c^(1−r) / Page, of the head's dimensions
}

// SplitCompression splits c, which counts as 1 where it is less, by the factor r; r below 0
// stands for the adaptive one.
func SplitCompression(c, r float64) Compression {
	c = max(1, c)
	if r < 0 {
		r = min(0.2+0.06*math.Log2(c), 0.8)
	}
	out := Compression{R: r, First: math.Pow(c, r)}
	out.Page, out.Head = splitHSA(math.Pow(c, 1-r))
	return out
}

// splitHSA splits the compression of hybrid sparse attention evenly between pages
// and dimensions; less than 2 is left to the dimensions, since pages of 2 would compress
// more than that.
func splitHSA(c float64) (page int, head float64) {
	p := 1.0
	if c >= 2 {
		p = math.Ceil(math.Sqrt(c) - 1e-9)
	}
	return int(p), c / p
}

// rocketkv is two parts. First, snapkv, whose scores are summed over window and group
// and pooled with kernel 63, evicts the prompt so that it makes S/c^r entries together
// with the response, where S is the length of both, c = S/B and r the adaptive split:
//
//	max(⌊S/c^r⌋, min(2·new, S)) − new
//
// entries of the prompt, at least as many as the response is long. Then [hsa] reads what
// that leaves. So it holds more than B entries and reads as much as B of them.
//
// S has to be known before the response is: new is the most that it may be, --max-new of
// a run, 0 where nothing says it. So a run that allows a longer response keeps less of
// the prompt, up to where new itself is the bound, from where it keeps more: 2,418, 1,953,
// 1,484 and 2,048 of 8,192 entries at B = 512 for new = 0, 512, 1,024 and 2,048. Runs
// compare with the same --max-new only. A prompt of up to B entries is kept whole.
type rocketkv struct {
	snapkv
	split float64 // r; below 0 adaptive
	dense int
}

// length is S of RocketKV §3.6: the entries of the prompt and of the longest response.
func (p Prompt) length() int { return p.Entries + p.MaxNew }

// splitPrompt is the split for a prompt by the factor r, and the entries that its first
// stage keeps.
func splitPrompt(p Prompt, r float64) (Compression, int) {
	c := SplitCompression(float64(p.length())/float64(p.Budget), r)
	whole := int(float64(p.length())/c.First + 1e-9)
	return c, max(whole, min(2*p.MaxNew, p.length())) - p.MaxNew
}

func (m rocketkv) Plan(p Prompt) Plan {
	c, first := splitPrompt(p, m.split)
	snap, own := m.snapkv, p
	snap.window, own.Budget = max(1, min(snap.window, len(p.Tokens))), first // no rows of earlier turns
	plan := snap.Plan(own)
	if plan.Budget = first; m.dense > 0 {
		plan.Layers = denseBudgets(p, first, m.dense)
	}
	plan.Sparse = func(s *Session) SparseState { return startHSA(s, m.dense, c.Page, c.Head) }
	return plan
}

// denseBudgets are the same budgets for all layers but the first, which keep everything.
func denseBudgets(p Prompt, budget, dense int) []int {
	out := slices.Repeat([]int{budget}, len(p.layers()))
	for l := range min(dense, len(out)) {
		out[l] = p.Entries
	}
	return p.spread(out)
}
