package eviction

import "glimpse/model"

func init() {
	Policies.Add("laq", Policy{
		Kind: "prefill", Doc: "lookahead Q-cache: a draft decoded on the snapkv-evicted cache scores the full cache with its queries", Source: "LAQ (Wang et al. 2025); lookaheadkv.txt §2",
		Scorer:  true,
		Options: append(snapOptions(groupMean), lookaheadOption),
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return laq{newSnapKV(s), s.Int("lookahead")}, nil
		},
	})
}

var lookaheadOption = Option{Name: "lookahead", Default: 8, Min: 1, Max: 4096, Whole: true, Doc: "draft tokens (32 in lookaheadkv.txt's comparison)"}

// laq is snapkv in its first stage. Like snapkv it keeps the window in both.
type laq struct {
	snapkv
	lookahead int
}

func (m laq) DraftTokens() int { return m.lookahead }

func (m laq) ScoreDraft(dst [][]float32, p Prompt, o *model.Observation) error {
	m.draftFormula(p, o).score(dst)
	return nil
}

func (m laq) draftFormula(_ Prompt, o *model.Observation) formula {
	return one(o.Probes[0], m.group).pooled(m.kernel, 0)
}
