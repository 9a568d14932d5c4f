package eviction

import (
	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("snapkv", Policy{
		Kind: "prefill", Doc: "mean attention of the last prompt rows on what is before them, max-pooled; the window is kept", Source: "SnapKV (Li et al. 2024, arXiv:2404.14469) §4; LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) §2",
		Scorer:  true,
		Options: append(snapOptions(kernels.GroupMean), denseOption, perOption),
		New: func(s Settings) (Method, error) {
			m := newSnapKV(s)
			switch {
			case s.OptionText("per") == perQueryHead:
				return snapPerHead{snapDense{m, s.Int("dense")}}, nil
			case s.Int("dense") > 0:
				return snapDense{m, s.Int("dense")}, nil
			}
			return m, nil
		},
	})
}

func snapOptions(group kernels.Grouping) []Option {
	return []Option{
		{Name: "window", Default: 32, Min: 1, Max: 1 << 20, Whole: true, Doc: "last prompt rows observed and kept; at most half the budget"},
		kernelOption(7),
		groupOption(group),
	}
}

func newSnapKV(s Settings) snapkv {
	return snapkv{window: s.Int("window"), kernel: s.Int("kernel"), group: groupingOf(s)}
}

type snapkv struct {
	window, kernel int
	group          kernels.Grouping
}

func (m snapkv) Plan(p Prompt) Plan {
	window := windowOf(m.window, p.Budget)
	return Plan{
		Capture: runner.Capture{Windows: []int{window}}, Recent: window,
		Score: func(s *Scores, o *runner.Observation) { s.Observe(m.term(p, o)) },
	}
}

// term must not leak the window's own scores into what is before it.
func (m snapkv) term(p Prompt, o *runner.Observation) kernels.ScoreTerm {
	return m.termOf(o.Windows[0], p)
}

func (m snapkv) termOf(logScore *kernels.Tensor, p Prompt) kernels.ScoreTerm {
	return kernels.ScoreTerm{LogScore: logScore, Group: m.group, Kernel: m.kernel, Tail: windowOf(m.window, p.Budget)}
}

// snapDense is snapkv that leaves first layers whole.
type snapDense struct {
	snapkv
	dense int
}

func (m snapDense) Plan(p Prompt) Plan {
	plan := m.snapkv.Plan(p)
	plan.Layers = denseBudgets(p, p.Budget, m.dense)
	return plan
}
