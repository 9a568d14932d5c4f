package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("judgeq", Policy{
		Kind: "prefill", Doc: "mean attention of trained soft tokens appended to the prompt", Source: "Judge Q (Liu et al. 2025, arXiv:2509.10798) §4",
		Adapter: "judgeq", Scorer: true,
		Options: []Option{kernelOption(1), groupOption(kernels.GroupMean)},
		New:     func(s Settings) (Method, error) { return newLearned(s) },
	})
}

// learned scores by the rows of an adapter. No window is kept: what the rows
// have learned includes the end of the prompt.
type learned struct {
	adapter model.RowsAdapter
	kernel  int
	group   kernels.Grouping
}

func newLearned(s Settings) (learned, error) {
	rows, err := adapterOf[model.RowsAdapter](s)
	return learned{adapter: rows, kernel: s.Int("kernel"), group: groupingOf(s)}, err
}

func (m learned) Plan(Prompt) Plan {
	return Plan{
		Capture: runner.Capture{Probes: []model.QueryRows{m.adapter}},
		Score:   func(s *Scores, o *runner.Observation) { s.Observe(m.term(o)) },
	}
}

func (m learned) term(o *runner.Observation) kernels.ScoreTerm {
	return kernels.ScoreTerm{LogScore: o.Probes[0], Group: m.group, Kernel: m.kernel}
}
