package eviction

import (
	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("laq++", Policy{
		Kind: "prefill", Doc: "laq whose second look also counts and keeps the last prompt rows", Source: "LAQ++ (Wang et al. 2025, arXiv:2505.20334)",
		Scorer: true,
		Options: append(snapOptions(kernels.GroupMean), lookaheadOption,
			Option{Name: "rows", Default: 8, Min: 1, Max: 1 << 20, Whole: true, Doc: "last prompt rows that the second look counts and keeps; at most half the budget"}),
		New: func(s Settings) (Method, error) {
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

func (m laqPlus) Plan(p Prompt) Plan {
	plan, kept := m.laq.Plan(p), windowOf(m.rows, p.Budget)
	plan.Capture.Windows = append(plan.Capture.Windows, kept)
	if p.Drafted > 0 {
		plan.Recent = kept
		plan.Score = func(s *Scores, o *runner.Observation) {
			rows := copied(o.Cache, o.Layer, o.Probes[0])
			s.Ops.MergeScores(rows, o.Windows[1], float64(p.Drafted), float64(min(kept, len(p.Tokens))))
			s.Observe(kernels.ScoreTerm{LogScore: rows, Group: m.group, Kernel: m.kernel, Tail: kept})
		}
	}
	return plan
}
