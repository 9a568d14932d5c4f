package eviction

import (
	"math"

	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("laq++", Policy{
		Kind: "prefill", Doc: "laq whose second look also counts and keeps the last prompt rows", Source: "LAQ++ (Wang et al. 2025, arXiv:2505.20334)",
		Scorer: true,
		Options: append(snapOptions(groupMean), lookaheadOption,
			Option{Name: "rows", Default: 8, Min: 1, Max: 1 << 20, Whole: true, Doc: "last prompt rows that the second look counts and keeps; at most half the budget"}),
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return laqPlus{laq{newSnapKV(s), s.Int("lookahead")}, s.Int("rows")}, nil
		},
	})
}

// laqPlus (LAQ++ of Wang et al., arXiv:2505.20334) scores the full cache by
// s_j = (Σ_r a_rj + Σ_w a_wj) / (R + W): the mean attention of the draft's R rows and of
// the last W rows of the prompt, every row counting alike. The W rows are kept: the
// authors' script has 32 of them in the first look and 8 in the second.
type laqPlus struct {
	laq
	rows int
}

func (m laqPlus) Capture(p Prompt) model.Capture {
	return m.laq.Capture(p).Merge(model.Capture{Windows: []int{windowOf(m.rows, p.Budget)}})
}

// Protect is snapkv's window in the first look.
func (m laqPlus) Protect(p Prompt) (sink, recent int) {
	if p.Drafted > 0 {
		return 0, windowOf(m.rows, p.Budget)
	}
	return m.snapkv.Protect(p)
}

func (m laqPlus) ScoreDraft(dst [][]float32, p Prompt, o *model.Observation) error {
	m.draftFormula(p, o).score(dst)
	return nil
}

func (m laqPlus) draftFormula(p Prompt, o *model.Observation) formula {
	kept := windowOf(m.rows, p.Budget)
	mean := meanOfRows(o.Cache, o.Probes[0], p.Drafted, o.Windows[1], min(kept, len(p.Tokens)))
	return one(mean, m.group).pooled(m.kernel, kept)
}

// meanOfRows is the logarithm of the mean over the rows of two observations.
func meanOfRows(c *model.Cache, a *kernels.Tensor, rowsA int, b *kernels.Tensor, rowsB int) *kernels.Tensor {
	if deviceOf(c) != nil {
		out := copied(c, a)
		c.Backend().MergeScores(out, b, float64(rowsA), float64(rowsB))
		return out
	}
	x, y := a.Float64s(), b.Float64s()
	out := make([]float64, len(x))
	all := float64(rowsA + rowsB)
	for i := range out {
		out[i] = math.Log((float64(rowsA)*math.Exp(x[i]) + float64(rowsB)*math.Exp(y[i])) / all)
	}
	return kernels.FromF64(out, a.Shape...)
}
