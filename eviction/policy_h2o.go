package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
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
		New: func(s Settings, _ model.Adapter) (Method, error) {
			m := h2o{share: s.Float("recent"), window: s.Int("window"), kernel: s.Int("kernel")}
			if m.window > 0 {
				return m, nil
			}
			return h2oDecoding{m}, nil
		},
	})
}

type h2o struct {
	share          float64
	window, kernel int
}

func (m h2o) Capture(Prompt) model.Capture {
	if m.window > 0 {
		return model.Capture{Windows: []int{m.window}}
	}
	return model.Capture{AllRows: true}
}

// Score is the accumulated probability: the mean times the number of rows, so
// that what decoding adds has the same unit.
func (m h2o) Score(s *Scores, p Prompt, o *model.Observation) error {
	scores, rows := o.AllRows, len(p.Tokens)
	if m.window > 0 {
		scores, rows = o.Windows[0], min(m.window, rows)
	}
	s.Observe(kernels.ScoreTerm{LogScore: scores, Factor: float32(rows)})
	return nil
}

func (m h2o) Protect(p Prompt) (sink, recent int) { return 0, m.recent(p.Budget) }

func (m h2o) Pooling(p Prompt) Pooling { return Pooling{m.kernel, m.recent(p.Budget)} }

func (m h2o) recent(budget int) int { return int(m.share * float64(budget)) }

// h2oDecoding is h2o that goes on while decoding.
type h2oDecoding struct{ h2o }

func (m h2oDecoding) StartDecode(s *Session) DecodeState {
	return &h2oState{NewAccumulated(s), s.Prompt.Budget, m.Pooling(s.Prompt)}
}

type h2oState struct {
	*Accumulated
	budget int
	ranks  Pooling // whose tail are the most recent
}

// choose is nil where everything stays.
func (s *h2oState) choose(sums *Scores) *kernels.Selection {
	if sums.Most() <= s.budget {
		return nil
	}
	return s.ranks.Of(sums).Select(sums.Uniform(s.budget), 0, s.ranks.Tail)
}

func (s *h2oState) Step(o *model.Observation) (*kernels.Selection, error) {
	keep := s.choose(s.Add(o))
	if keep != nil {
		s.Retain(o.Layer, keep)
	}
	return keep, nil
}

// StepAll implements JointState.
func (s *h2oState) StepAll(logScores *kernels.Tensor, entries []int) *kernels.Selection {
	keep := s.choose(s.AddAll(logScores, entries))
	if keep != nil {
		s.RetainAll(keep)
	}
	return keep
}
