package eviction

import (
	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("h2o", Policy{
		Kind: "prefill + decode", Doc: "heavy hitters: attention accumulated over all rows so far, and the most recent entries", Source: "H2O (Zhang et al. 2023, arXiv:2306.14048); D2O (Wan et al. 2025, arXiv:2406.13035) eq. 6",
		Scorer: true,
		Options: []Option{
			{Name: "recent", Default: 0.5, Min: 0, Max: 1, Doc: "share of the budget for the most recent entries"},
			{Name: "window", Default: 0, Min: 0, Max: 1 << 20, Whole: true, Doc: "0 accumulates over all rows; else only over so many last prompt rows, and decoding does not evict (the one-shot variant of the tables of Judge Q, arXiv:2509.10798)"},
			kernelOption(1),
		},
		New: func(s Settings) (Method, error) {
			return h2o{share: s.Float("recent"), window: s.Int("window"), kernel: s.Int("kernel")}, nil
		},
	})
}

type h2o struct {
	share          float64
	window, kernel int
}

func (m h2o) Plan(p Prompt) Plan {
	recent := int(m.share * float64(p.Budget))
	ranks := Pooling{m.kernel, recent}
	if m.window > 0 {
		return Plan{Capture: runner.Capture{Windows: []int{m.window}}, Recent: recent, Pooling: ranks, Score: func(s *Scores, o *runner.Observation) {
			accumulate(s, o.Windows[0], min(m.window, len(p.Tokens)))
		}}
	}
	plan := accumulated(p)
	plan.Recent, plan.Pooling = recent, ranks
	plan.Decode = func(s *Session) *Decoding {
		sums := NewAccumulated(s)
		choose := func(now *Scores) *kernels.Selection { // nil where everything stays
			if now.Most() <= p.holds() {
				return nil
			}
			return ranks.Of(now).Select(now.Uniform(p.holds()), 0, recent)
		}
		d := sums.Decoding()
		d.Step = func(o *runner.Observation) (*kernels.Selection, error) {
			keep := choose(sums.Add(o))
			if keep != nil {
				sums.Retain(o.Layer, keep)
			}
			return keep, nil
		}
		d.StepAll = func(logScores *kernels.Tensor, entries []int) *kernels.Selection {
			keep := choose(sums.AddAll(logScores, entries))
			if keep != nil {
				sums.RetainAll(keep)
			}
			return keep
		}
		return d
	}
	return plan
}
