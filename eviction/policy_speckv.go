package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("speckv", Policy{
		Kind: "prefill", Doc: "a draft model's answer and the last prompt rows; the largest attention of any row and head", Source: "SpecKV (Galim et al. 2025, arXiv:2506.08373) alg. 1; LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) §2",
		Scorer: true, Draft: true,
		Options: append(snapOptions(kernels.GroupMax), Option{Name: "tokens", Default: 32, Min: 1, Max: 4096, Whole: true, Doc: "most tokens of the draft"}),
		New: func(s Settings) (Method, error) {
			return speckv{newSnapKV(s), s.Resources.Draft, s.Int("tokens")}, nil
		},
	})
}

// speckv is snapkv that also observes the rows of a draft which a smaller model
// wrote with its own full cache, up to its end token, and takes the largest
// probability of any row where snapkv takes the mean: s_j = max over the rows r of
// window and draft, and the heads of the group, of softmax(q_r·K/√d)_j, max-pooled.
// The draft's rows run in the target's own pass.
type speckv struct {
	snapkv
	draft  *model.Model // nil: the model itself
	tokens int
}

func (m speckv) Plan(p Prompt) Plan {
	plan := m.snapkv.Plan(p)
	plan.Draft = &Draft{m.draft, m.tokens}
	plan.Capture = runner.Capture{PeakWindows: plan.Capture.Windows}
	if len(p.Draft) > 0 { // an answer that ends at once leaves the window alone
		plan.Capture.PeakProbes = []model.QueryRows{model.TokenRows(p.Draft)}
	}
	plan.Score = func(s *Scores, o *runner.Observation) {
		scores := o.PeakWindows[0]
		if len(o.PeakProbes) > 0 {
			scores = copied(o.Cache, o.Layer, scores)
			s.Ops.MaxScores(scores, o.PeakProbes[0])
		}
		s.Observe(m.termOf(scores, p))
	}
	return plan
}
