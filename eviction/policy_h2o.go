package eviction

import (
	"slices"

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
func (m h2o) Score(dst [][]float32, p Prompt, o *model.Observation) error {
	return scoreBy(m, dst, p, o)
}

func (m h2o) formula(p Prompt, o *model.Observation) (formula, bool) {
	scores, rows := o.AllRows, len(p.Tokens)
	if m.window > 0 {
		scores, rows = o.Windows[0], min(m.window, rows)
	}
	f := one(scores, groupMean)
	f.terms[0].Factor = float32(rows)
	return f, true
}

func (m h2o) Protect(p Prompt) (sink, recent int) { return 0, m.recent(p.Budget) }

func (m h2o) pooling(p Prompt) pooling { return pooling{m.kernel, m.recent(p.Budget)} }

func (m h2o) recent(budget int) int { return int(m.share * float64(budget)) }

// h2oDecoding is h2o that goes on while decoding.
type h2oDecoding struct{ h2o }

// stepFootprint counts the sums of the prompt, those of all layers, their spare, and what
// they are pooled to.
func (m h2oDecoding) stepFootprint() (model.Capture, int) {
	kept := 3
	if m.pooling(Prompt{}).pools() {
		kept++
	}
	return model.Capture{Windows: []int{1}}, kept
}

func (m h2oDecoding) StartDecode(s *Session) DecodeState {
	if sums := newDeviceSums(s); sums != nil {
		return &h2oDeviceState{sums, s.Prompt.Budget, m.pooling(s.Prompt)}
	}
	return &h2oState{newAccumulated(s), s.Prompt.Budget, m.pooling(s.Prompt)}
}

type h2oState struct {
	accumulated
	budget  int
	pooling // whose tail are the most recent
}

func (s *h2oState) Step(o *model.Observation) ([][]int32, error) {
	s.add(o)
	var keep [][]int32
	for g, sums := range s.accumulated[o.Layer] {
		if len(sums) > s.budget {
			idx := selectHead(s.head(sums), s.budget, 0, s.tail)
			s.keep(o.Layer, g, idx)
			keep = append(keep, idx)
		}
	}
	return keep, nil
}

// h2oDeviceState is h2oState with sums that never leave the device.
type h2oDeviceState struct {
	*deviceSums
	budget int
	pooling
}

// stepOn implements deviceState.
func (s *h2oDeviceState) stepOn(d kernels.Selector, o *model.Observation) (*kernels.Selection, error) {
	sums := s.add(d, o)
	if slices.Max(sums.entries) <= s.budget {
		return nil, nil
	}
	ranked := s.tensor(d, sums.device, sums.entries)
	keep := d.Select(ranked, sums.entries, slices.Repeat([]int{s.budget}, len(sums.entries)), 0, s.tail)
	s.keep(d, o.Layer, keep)
	return keep, nil
}

// stepAllOn implements jointState.
func (s *h2oDeviceState) stepAllOn(d kernels.Selector, scores *kernels.Tensor, entries []int) *kernels.Selection {
	s.addAll(d, scores, entries)
	if slices.Max(entries) <= s.budget {
		return nil
	}
	ranked := s.tensor(d, s.joint, entries)
	keep := d.Select(ranked, entries, slices.Repeat([]int{s.budget}, len(entries)), 0, s.tail)
	s.keepAll(d, keep)
	return keep
}
