package eviction

import (
	"slices"

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

func (m tova) Score(dst [][]float32, p Prompt, o *model.Observation) error {
	return scoreBy(m, dst, p, o)
}

// formula is the logarithm of the mean over all heads of the last row's attention, of
// which float32 has only zeros for much of a sharp head's entries.
func (m tova) formula(_ Prompt, o *model.Observation) (formula, bool) {
	f := one(o.Windows[0], groupLogMean).pooled(m.kernel, 0)
	f.allHeads = true
	return f, true
}

func (m tova) StartDecode(s *Session) DecodeState {
	return tovaState{m, s.Prompt.Budget, s.Cache.KVHeads()}
}

type tovaState struct {
	tova
	budget, kvHeads int
}

func (s tovaState) Capture() model.Capture { return s.tova.Capture(Prompt{}) }

func (s tovaState) Step(o *model.Observation) ([][]int32, error) {
	if o.Cache.Entries(o.Layer, 0) <= s.budget {
		return nil, nil
	}
	dst := newScores(o)
	if err := s.Score(dst, Prompt{}, o); err != nil {
		return nil, err
	}
	idx := selectHead(dst[0], s.budget, 0, 0)
	keep := make([][]int32, len(dst))
	for h := range keep {
		keep[h] = idx
	}
	return keep, nil
}

// stepOn implements deviceState.
func (s tovaState) stepOn(d kernels.Selector, o *model.Observation) (*kernels.Selection, error) {
	if o.Cache.Entries(o.Layer, 0) <= s.budget {
		return nil, nil
	}
	f, _ := s.formula(Prompt{}, o)
	scores := f.on(d, o)
	return d.Select(scores.device, scores.entries, slices.Repeat([]int{s.budget}, len(scores.entries)), 0, 0), nil
}

// stepAllOn implements jointState.
func (s tovaState) stepAllOn(d kernels.Selector, logScores *kernels.Tensor, entries []int) *kernels.Selection {
	if slices.Max(entries) <= s.budget {
		return nil
	}
	scores := d.Alloc(kernels.F32, len(entries), slices.Max(entries))
	d.Scores(scores, entries, []kernels.ScoreTerm{{LogScore: logScores, Group: kernels.GroupLogMean}}, false)
	d.MeanScores(scores, entries, s.kvHeads, true)
	scores = pooling{s.kernel, 0}.tensor(d, scores, entries)
	return d.Select(scores, entries, slices.Repeat([]int{s.budget}, len(entries)), 0, 0)
}
