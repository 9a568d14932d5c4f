package eviction

import (
	"slices"

	"glimpse/model"
)

func init() {
	Policies.Add("lacache", Policy{
		Kind: "prefill", Doc: "ladder: of every group of entries the shallow layers keep the early and the deep layers the late ones", Source: "LaCache (Shi et al. 2025) §3.2, §3.3",
		Options: []Option{
			{Name: "span", Default: 16, Min: 1, Max: 1 << 12, Whole: true, Doc: "layers that keep an entry S; at most half of all"},
			{Name: "overlap", Default: 0, Min: 0, Max: 1 << 12, Whole: true, Doc: "layers that two neighbouring steps of the ladder share O; below the span"},
			{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept; at most half the budget"},
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return lacache{span: s.Int("span"), overlap: s.Int("overlap"), sink: s.Int("sink")}, nil
		},
	})
}

// lacache keeps entries by their place alone. Of T consecutive entries, a ladder,
// entry j is kept by the S layers from j·(S−O) on, so that the first are kept by the
// shallow layers and the last by the deep ones; T = 1 + ⌈(L−S)/(S−O)⌉ reaches the
// last of L layers. Compaction is iterative (§3.3): entries come in one by one, and
// whenever a layer holds more than the budget it drops the next entry that its
// ladders do not keep, from the oldest on and then again from the start, so that
// old entries are thinned out more often than new ones.
type lacache struct{ span, overlap, sink int }

func (lacache) Capture(Prompt) model.Capture { return model.Capture{} }

// Score is 1 for what is kept and 0 for the rest.
func (m lacache) Score(dst [][]float32, p Prompt, o *model.Observation) error {
	var keep []int32
	for h, d := range dst {
		if h == 0 || len(d) != len(dst[h-1]) {
			keep = m.keep(p, o.Layer, len(d))
		}
		clear(d)
		for _, j := range keep {
			d[j] = 1
		}
	}
	return nil
}

// steps tells for every step of a ladder whether the layer keeps it.
func (m lacache) steps(layer, layers int) []bool {
	span := max(1, min(m.span, layers/2)) // a longer one would leave nothing to drop
	stride := span - min(m.overlap, span-1)
	steps := make([]bool, max(2, 1+(layers-span+stride-1)/stride))
	for j := range steps {
		steps[j] = layer >= j*stride && layer < j*stride+span
	}
	return steps
}

// keep is the entries that a layer keeps of n, as many as the budget.
func (m lacache) keep(p Prompt, layer, n int) []int32 {
	steps := m.steps(layer, p.Config.Layers)
	sink := min(m.sink, p.Budget/2)
	// The newest entries, as many as there are layers, wait for their first ladder.
	recent := max(1, min(p.Config.Layers, p.Budget/2))
	held := upTo(0, min(p.Budget, n))
	at, step, dropped := sink, 0, true
	for j := len(held); j < n; j++ {
		held = append(held, int32(j))
		for len(held) > p.Budget {
			if at >= len(held)-recent { // start over, in step where the last round dropped nothing
				at = sink
				if dropped {
					step, dropped = 0, false
				}
			}
			if steps[step%len(steps)] {
				at++
			} else {
				held = slices.Delete(held, at, at+1)
				dropped = true
			}
			step++
		}
	}
	return held
}
