package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

// SelectedOnHost is what the host's rules keep of the scores that a plan was made by; nil
// where nothing was scored.
func SelectedOnHost(p *Plan) [][][]int32 {
	r := p.request
	if p.Scores == nil {
		return nil
	}
	budgets := slices.Repeat([]int{r.prompt.Budget}, len(p.Scores))
	if a, ok := r.method.(CrossLayerAllocator); ok {
		budgets = a.CrossLayerBudgets(r.prompt, r.statistics)
	}
	var out [][][]int32
	for l, scores := range p.Scores {
		if m, ok := r.method.(SpreadScorer); ok {
			spread := layerScores{device: r.scores[l].spread, entries: r.scores[l].entries}
			var kept [][]int32
			for h, s := range spread.rows() {
				kept = append(kept, m.SelectSpread(scores[h], s, budgets[l]))
			}
			out = append(out, kept)
			continue
		}
		prompt := r.prompt
		prompt.Budget = budgets[l]
		out = append(out, selectLayer(r.method, prompt, l, scores))
	}
	return out
}

// SparseChoices are what a device and the host have chosen for the same queries and keys.
type SparseChoices struct {
	*deviceSparse
	host       SparseState
	Compare    func(layer int, device, host [][]int32)
	Estimation int64 // bytes that the host has read to choose
}

// onDeviceAlone: the host reads queries and keys.
func (*SparseChoices) onDeviceAlone() bool { return false }

// Select lets both choose and goes on with the device's choice.
func (c *SparseChoices) Select(s *model.SparseStep) (int64, error) {
	other := *s
	n, err := c.host.Select(&other)
	if err != nil {
		return 0, err
	}
	c.Estimation += n
	if n, err = c.deviceSparse.Select(s); err != nil {
		return 0, err
	}
	var chosen [][]int32
	if s.Selection != nil {
		chosen = s.Selection.Indices()
	}
	c.Compare(s.Layer, chosen, other.Entries)
	return n, nil
}

// HostSelectsToo lets the host choose beside the device of a session that has run a
// prompt; nil where no device chooses.
func HostSelectsToo(s *Session) *SparseChoices {
	device, ok := s.sparse.(*deviceSparse)
	if !ok {
		return nil
	}
	c := &SparseChoices{deviceSparse: device}
	decoder := s.second
	if decoder == nil {
		decoder = s.method.(SparseDecoder)
	}
	switch m := decoder.(type) {
	case exactTopK:
		c.host = &exactState{newSparseState(s, nil, 0, 1, 0)}
	case sparq:
		c.host = m.onHost(s)
	default:
		l := m.(layouter).layout(s)
		c.host = newSparseState(s, device.estimator, l.dense, l.size, l.bounds)
	}
	s.sparse = c
	return c
}

// SparseLog takes down what a device chooses, also in steps that are recorded.
type SparseLog struct {
	*deviceSparse
	layers []*kernels.Selection // copies of the last step's; nil: all entries
}

// LogChoices takes down what the device of a session chooses; nil where no device does.
func LogChoices(s *Session) *SparseLog {
	device, ok := s.sparse.(*deviceSparse)
	if !ok {
		return nil
	}
	l := &SparseLog{device, make([]*kernels.Selection, s.Cache.Layers())}
	s.sparse = l
	return l
}

// Select copies the choice into memory of its own, which the next layer leaves alone.
func (l *SparseLog) Select(s *model.SparseStep) (int64, error) {
	n, err := l.deviceSparse.Select(s)
	l.layers[s.Layer] = nil
	if err != nil || s.Selection == nil {
		return n, err
	}
	all, base := make([][]int32, s.Cache.KVHeads()), make([]int, s.Cache.KVHeads())
	for h := range all {
		all[h], base[h] = upTo(0, s.Cache.Entries(s.Layer, h)), s.Cache.Entries(s.Layer, h)
	}
	l.layers[s.Layer] = s.Backend().Selector().Compose(kernels.HostSelection(all), s.Selection, base)
	return n, err
}

// Choices are those of the last step by layer and head; nil where a layer attended to
// everything.
func (l *SparseLog) Choices() (out [][][]int32) {
	for _, s := range l.layers {
		if s == nil {
			out = append(out, nil)
		} else {
			out = append(out, s.Indices())
		}
	}
	return out
}

// FirstStage is what rocketkv's first stage keeps of a prompt.
func FirstStage(p Prompt) int {
	_, first := splitPrompt(p)
	return first
}

// SparseSteps shows every choice of a session's host, and the bytes read for it.
func SparseSteps(s *Session, show func(step *model.SparseStep, estimation int64)) {
	s.sparse = shownSteps{s.sparse, show}
}

type shownSteps struct {
	SparseState
	show func(*model.SparseStep, int64)
}

func (x shownSteps) Select(s *model.SparseStep) (int64, error) {
	n, err := x.SparseState.Select(s)
	x.show(s, n)
	return n, err
}
