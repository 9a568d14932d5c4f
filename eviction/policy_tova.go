package eviction

import "glimpse/model"

func init() {
	Policies.Add("tova", Policy{
		Scorer: true,
		Kind:   "prefill + decode", Doc: "attention of the last token, averaged over all heads of the layer", Source: "TOVA (Oren et al. 2024) §3.2",
		New: func(Settings, model.Adapter) (Method, error) { return tova{}, nil },
	})
}

// tova has no memory: whatever the current token attends to least, averaged over
// the heads of the layer, goes, in all heads alike. Nothing is protected.
type tova struct{}

func (tova) Capture(Prompt) model.Capture { return model.Capture{Windows: []int{1}} }

func (tova) Score(dst [][]float32, _ Prompt, o *model.Observation) error {
	layerMean(dst, o)
	return nil
}

// layerMean writes to every KV head the mean over all of the last row's attention.
func layerMean(dst [][]float32, o *model.Observation) {
	groupMean.reduce(dst, o.Windows[0])
	mean := dst[0]
	for _, d := range dst[1:] {
		for j, v := range d {
			mean[j] += v
		}
	}
	for j := range mean {
		mean[j] /= float32(len(dst))
	}
	for _, d := range dst[1:] {
		copy(d, mean)
	}
}

func (m tova) StartDecode(s *Session) DecodeState { return tovaState{m, s.Prompt.Budget} }

type tovaState struct {
	tova
	budget int
}

func (s tovaState) Capture() model.Capture { return s.tova.Capture(Prompt{}) }

func (s tovaState) Step(o *model.Observation) ([][]int32, error) {
	if o.Cache.Entries(o.Layer, 0) <= s.budget {
		return nil, nil
	}
	dst := newScores(o)
	layerMean(dst, o)
	idx := selectHead(dst[0], s.budget, 0, 0)
	keep := make([][]int32, len(dst))
	for h := range keep {
		keep[h] = idx
	}
	return keep, nil
}
