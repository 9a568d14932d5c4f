package eviction

import (
	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("tova", Policy{
		Scorer: true,
		Kind:   "prefill + decode", Doc: "attention of the last token, averaged over all heads of the layer", Source: "TOVA (Oren et al. 2024, arXiv:2401.06104) §3.2",
		Options: []Option{kernelOption(1)},
		New:     func(s Settings) (Method, error) { return tova{s.Int("kernel")}, nil },
	})
}

// tova has no memory: whatever the current token attends to least, averaged over
// the heads of the layer, goes, in all heads alike. Nothing is protected.
type tova struct{ kernel int }

func (m tova) Plan(p Prompt) Plan {
	return Plan{
		Capture: runner.Capture{Windows: []int{1}}, Score: m.score,
		Decode: func(s *Session) *Decoding {
			ops, kvHeads := s.Cache.On(0).Selector(), s.Cache.KVHeads() // of all layers at once, on one device
			return &Decoding{
				Capture: runner.Capture{Windows: []int{1}},
				Step: func(o *runner.Observation) (*kernels.Selection, error) {
					if o.Cache.Entries(o.Layer, 0) <= p.holds() {
						return nil, nil
					}
					scores := NewScores(o)
					m.score(scores, o)
					scores.stay = s.staying(o.Layer)
					s.Ranked(o.Layer, scores)
					return scores.Select(scores.Uniform(p.holds()), 0, 0), nil
				},
				StepAll: func(logScores *kernels.Tensor, entries []int) *kernels.Selection {
					scores := &Scores{Ops: ops, Entries: entries}
					if scores.Most() <= p.Budget {
						return nil
					}
					scores.Observe(kernels.ScoreTerm{LogScore: logScores, Group: kernels.GroupLogMean})
					ops.MeanScores(scores.Values, entries, kvHeads, true)
					return Pooling{m.kernel, 0}.Of(scores).Select(scores.Uniform(p.Budget), 0, 0)
				},
			}
		},
	}
}

// score is the logarithm of the mean over all heads of the last row's attention, of
// which float32 has only zeros for much of a sharp head's entries.
func (m tova) score(s *Scores, o *runner.Observation) {
	s.Values = s.Alloc()
	term := kernels.ScoreTerm{LogScore: o.Windows[0], Group: kernels.GroupLogMean, Kernel: m.kernel}
	s.Ops.Scores(s.Values, s.Entries, []kernels.ScoreTerm{term}, true)
}
