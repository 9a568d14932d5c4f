package eviction

import (
	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("laq", Policy{
		Kind: "prefill", Doc: "lookahead Q-cache: a draft decoded on the snapkv-evicted cache scores the full cache with its queries", Source: "LAQ (Wang et al. 2025, arXiv:2505.20334); LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) app. F",
		Scorer:  true,
		Options: append(snapOptions(kernels.GroupMean), lookaheadOption),
		New: func(s Settings) (Method, error) {
			return laq{newSnapKV(s), s.Int("lookahead")}, nil
		},
	})
}

var lookaheadOption = Option{Name: "lookahead", Default: 32, Min: 1, Max: 4096, Whole: true, Doc: "most draft tokens (the authors' own script has 8)"}

// laq (Lookahead Q-Cache, Wang et al., arXiv:2505.20334) drafts on what snapkv keeps, up to
// an end token, and then scores the full cache by the attention of the draft's queries
// alone: s_j = mean over the draft's rows, max-pooled. Its second look keeps no window.
// LookaheadKV's paper gives it as many draft tokens as it has lookahead rows, 32
// (App. F); so does the default.
type laq struct {
	snapkv
	lookahead int
}

// Plan is snapkv's in the first look.
func (m laq) Plan(p Prompt) Plan {
	plan := m.snapkv.Plan(p)
	plan.Drafted = m.lookahead
	if p.Drafted > 0 {
		plan.Recent = 0
		plan.Score = func(s *Scores, o *runner.Observation) {
			s.Observe(kernels.ScoreTerm{LogScore: o.Probes[0], Group: m.group, Kernel: m.kernel})
		}
	}
	return plan
}
