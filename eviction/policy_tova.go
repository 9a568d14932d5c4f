package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("tova", Policy{
		Scorer: true,
		Kind:   "prefill + decode", Doc: "attention of the last token, averaged over all heads of the layer", Source: "TOVA (Oren et al. 2024, arXiv:2401.06104) §3.2",
		Options: []Option{kernelOption(1)},
		New:     func(s Settings, _ model.Adapter) (Method, error) { return tova{s.Int("kernel")}, nil },
	})
}

// tova has no memory: whatever the current token attends to least, averaged over
// the heads of the layer, goes, in all heads alike. Nothing is protected.
type tova struct{ kernel int }

func (tova) Capture(Prompt) model.Capture { return model.Capture{Windows: []int{1}} }

// Score is the logarithm of the mean over all heads of the last row's attention, of
// which float32 has only zeros for much of a sharp head's entries.
func (m tova) Score(s *Scores, _ Prompt, o *model.Observation) error {
	s.Values = s.Alloc()
	term := kernels.ScoreTerm{LogScore: o.Windows[0], Group: kernels.GroupLogMean, Kernel: m.kernel}
	s.Ops.Scores(s.Values, s.Entries, []kernels.ScoreTerm{term}, true)
	return nil
}

func (m tova) StartDecode(s *Session) DecodeState {
	return tovaState{m, s.Cache.On(0).Selector(), s.Prompt.Budget, s.Cache.KVHeads(), s.Ranked}
}

type tovaState struct {
	tova
	ops             kernels.Selector // of all layers at once, on one device
	budget, kvHeads int
	ranked          func(layer int, s *Scores)
}

func (s tovaState) Capture() model.Capture { return s.tova.Capture(Prompt{}) }

func (s tovaState) Step(o *model.Observation) (*kernels.Selection, error) {
	if o.Cache.Entries(o.Layer, 0) <= s.budget {
		return nil, nil
	}
	scores := NewScores(o)
	if err := s.Score(scores, Prompt{}, o); err != nil {
		return nil, err
	}
	s.ranked(o.Layer, scores)
	return scores.Select(scores.Uniform(s.budget), 0, 0), nil
}

// StepAll implements JointState.
func (s tovaState) StepAll(logScores *kernels.Tensor, entries []int) *kernels.Selection {
	scores := &Scores{Ops: s.ops, Entries: entries}
	if scores.Most() <= s.budget {
		return nil
	}
	scores.Observe(kernels.ScoreTerm{LogScore: logScores, Group: kernels.GroupLogMean})
	s.ops.MeanScores(scores.Values, entries, s.kvHeads, true)
	return Pooling{s.kernel, 0}.Of(scores).Select(scores.Uniform(s.budget), 0, 0)
}
