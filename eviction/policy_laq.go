package eviction

import "glimpse/model"

func init() {
	Policies.Add("laq", Policy{
		Kind: "prefill", Doc: "lookahead Q-cache: a draft decoded on the snapkv-evicted cache scores the full cache with its queries", Source: "LAQ (Wang et al. 2025); lookaheadkv.txt §2",
		Options: append(snapOptions(), Option{Name: "lookahead", Default: 8, Min: 1, Max: 4096, Whole: true, Doc: "draft tokens (32 in lookaheadkv.txt's comparison)"}),
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return laq{snapkv{window: s.Int("window"), kernel: s.Int("kernel")}, s.Int("lookahead")}, nil
		},
	})
}

// laq is snapkv in its first stage. Like snapkv it keeps the window in both.
type laq struct {
	snapkv
	lookahead int
}

func (m laq) DraftTokens() int { return m.lookahead }

func (m laq) ScoreDraft(dst [][]float32, _ Prompt, o *model.Observation) error {
	groupMean(dst, o.Probes[0])
	pool(dst, m.kernel)
	return nil
}
