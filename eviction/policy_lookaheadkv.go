package eviction

import (
	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("lookaheadkv", Policy{
		Kind: "prefill", Doc: "mean attention of trained lookahead rows with Lookahead LoRA, max-pooled", Source: "LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) §3, app. A, F",
		Adapter: "lookaheadkv", Scorer: true,
		Options: []Option{kernelOption(7), groupOption(kernels.GroupMean), {
			Name: "window", Default: 0, Min: 0, Max: 1 << 20, Whole: true,
			Doc: "0 for the rows alone; else also snapkv's window of so many prompt rows, kept, whose scores are averaged in (LookaheadKV, arXiv:2603.10899, table 7: 32)",
		}},
		New: func(s Settings) (Method, error) {
			rows, err := newLearned(s)
			if err != nil || s.Int("window") == 0 {
				return rows, err
			}
			return suffixed{rows, newSnapKV(s)}, nil
		},
	})
}

// suffixed is the variant with a suffix window (LookaheadKV, arXiv:2603.10899, app. E.2, table 7): the
// mean of the rows' scores and snapkv's, each pooled as it is alone; the window is
// kept as snapkv keeps it.
type suffixed struct {
	rows   learned
	suffix snapkv
}

func (m suffixed) Plan(p Prompt) Plan {
	plan := m.suffix.Plan(p)
	plan.Capture = m.rows.Plan(p).Capture.Merge(plan.Capture)
	plan.Score = func(s *Scores, o *runner.Observation) { s.Observe(m.rows.term(o), m.suffix.term(p, o)) }
	return plan
}
