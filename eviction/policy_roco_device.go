package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

// passRows describes the prompt's rows to a device, with positions only where a window
// needs them.
func passRows(p Prompt, o *model.Observation) kernels.PassRows {
	r := kernels.PassRows{Count: len(p.Tokens), Next: int(o.Cache.Next()), Window: p.Config.Window(o.Layer)}
	if r.Window > 0 {
		for h := range o.Cache.KVHeads() {
			r.Positions = append(r.Positions, o.Cache.Positions(o.Layer, h))
		}
	}
	return r
}

// scoreOn implements deviceSpreader.
func (roco) scoreOn(d kernels.Selector, p Prompt, o *model.Observation) *layerScores {
	s := &layerScores{entries: entriesOf(o)}
	shape := []int{len(s.entries), slices.Max(s.entries)}
	s.device, s.spread = d.Alloc(kernels.F32, shape...), d.Alloc(kernels.F32, shape...)
	d.ScoreMoments(s.device, s.spread, s.entries, o.AllRows, o.Squares, passRows(p, o))
	return s
}

// selectSpreadOn implements deviceSpreader.
func (m roco) selectSpreadOn(d kernels.Selector, s *layerScores, budget int) *kernels.Selection {
	protected, sink, recent := m.protected(budget)
	return d.SelectSpread(s.device, s.spread, s.entries, budget, protected, sink, recent)
}

// rocoDeviceState is rocoState with moments that stay on the device.
type rocoDeviceState struct {
	roco
	budget int
	layers []rocoLayer
	spare  *kernels.Tensor // for what is kept of a layer; the layers take turns
	now    layerScores     // of the layer whose turn it is
}

type rocoLayer struct {
	moments *kernels.Tensor // F64 [3, kvHeads, width]
	entries []int           // that have some
}

// startOn begins a response on the device; nil where the prompt was scored on the host.
func (m roco) startOn(s *Session) DecodeState {
	d := deviceOf(s.Cache)
	if d == nil || len(s.scores) == 0 || s.scores[0].spread == nil {
		return nil
	}
	st, known := &rocoDeviceState{roco: m, budget: s.Prompt.Budget}, int32(len(s.history))
	for l, scores := range s.scores {
		x, seen := rocoLayer{}, make([][]int32, s.kept[l].Heads())
		for h := range seen {
			for _, pos := range s.Cache.Positions(l, h) {
				seen[h] = append(seen[h], rowsSince(pos, known, s.Prompt.Config.Window(l)))
			}
			x.entries = append(x.entries, len(seen[h]))
		}
		x.moments = d.Alloc(kernels.F64, 3, len(seen), slices.Max(x.entries)+sumsRoom)
		d.StartMoments(x.moments, scores.device, scores.spread, s.kept[l], seen)
		st.layers = append(st.layers, x)
	}
	return st
}

func (*rocoDeviceState) Capture() model.Capture { return model.Capture{Windows: []int{1}} }

// Step implements DecodeState for caches of other memory, which there are none of.
func (*rocoDeviceState) Step(*model.Observation) ([][]int32, error) {
	panic("eviction: a step of moments on a device")
}

// stepOn implements deviceState.
func (s *rocoDeviceState) stepOn(d kernels.Selector, o *model.Observation) (*kernels.Selection, error) {
	x, entries := &s.layers[o.Layer], entriesOf(o)
	most := slices.Max(entries)
	if most > x.moments.Shape[2] {
		wide := d.Alloc(kernels.F64, 3, len(entries), most+sumsRoom)
		all := make([][]int32, len(entries))
		for h, n := range x.entries {
			all[h] = upTo(0, n)
		}
		d.PickMoments(wide, x.moments, kernels.HostSelection(all))
		x.moments = wide
	}
	if s.now.device == nil || s.now.device.Width() < most {
		s.now.device, s.now.spread = d.Alloc(kernels.F32, len(entries), most+sumsRoom), d.Alloc(kernels.F32, len(entries), most+sumsRoom)
	}
	s.now.entries = entries
	d.AddMoments(s.now.device, s.now.spread, x.moments, entries, x.entries, o.Windows[0])
	x.entries = entries
	if most <= s.budget {
		return nil, nil
	}
	keep, to := s.selectSpreadOn(d, &s.now, s.budget), s.spare
	if to == nil || !slices.Equal(to.Shape, x.moments.Shape) {
		to = d.Alloc(kernels.F64, x.moments.Shape...)
	}
	d.PickMoments(to, x.moments, keep)
	s.spare, x.moments = x.moments, to
	x.entries = make([]int, keep.Heads())
	for h := range x.entries {
		x.entries[h] = keep.Len(h)
	}
	return keep, nil
}

// Carry implements Carrier for scores on the host, which it never meets.
func (*rocoDeviceState) Carry(Prompt, *model.Observation, [][]float32, [][]float32) {
	panic("eviction: moments on a device carried to the host")
}

// carryOn implements deviceCarrier: moments of both turns' rows together.
func (s *rocoDeviceState) carryOn(d kernels.Selector, p Prompt, o *model.Observation, scores *layerScores) {
	x := s.layers[o.Layer]
	d.CarryMoments(scores.device, scores.spread, scores.entries, x.moments, x.entries, passRows(p, o))
}
