package eviction

import (
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("roco", Policy{
		Kind: "prefill + decode", Doc: "mean attention of the rows that see an entry; entries whose attention varies most are protected", Source: "RoCo (Ren & Zhu 2024, arXiv:2402.06262) §4",
		Options: []Option{
			{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept"},
			{Name: "recent", Default: 10, Min: 0, Max: 1 << 20, Whole: true, Doc: "last entries kept"},
			{Name: "protect", Default: 0.3, Min: 0, Max: 1, Doc: "share of the budget that is protected, sinks and recent entries included, filled up by standard deviation"},
			kernelOption(1),
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return roco{sink: s.Int("sink"), recent: s.Int("recent"), protect: s.Float("protect"), kernel: s.Int("kernel")}, nil
		},
	})
}

// roco scores an entry by the mean E[a] of the probabilities a that the rows which
// see it pay it, over rows and the heads of the group: a sum would favour early
// entries. An entry that some rows attend to much and others not may matter again,
// so those with the largest standard deviation √(E[a²] − E[a]²) are kept whatever
// their mean.
type roco struct {
	sink, recent int
	protect      float64
	kernel       int
}

func (roco) Capture(Prompt) model.Capture { return model.Capture{AllRows: true, Squares: true} }

func (roco) Score(dst [][]float32, p Prompt, o *model.Observation) error {
	groupMean.reduce(dst, o.AllRows)
	for h, d := range dst {
		for j, seen := range rowsSeeing(p, o, h) {
			d[j] *= float32(len(p.Tokens)) / float32(max(1, seen))
		}
	}
	return nil
}

// rowsSeeing is how many rows of the prompt see each entry.
func rowsSeeing(p Prompt, o *model.Observation, head int) []int {
	pos := o.Cache.Positions(o.Layer, head)
	out := make([]int, len(pos))
	next := o.Cache.Next() // not advanced before the pass is over
	last := next + int32(len(p.Tokens)) - 1
	for j, at := range pos {
		to := last
		if w := p.Config.Window(o.Layer); w > 0 {
			to = min(to, at+int32(w)-1)
		}
		out[j] = max(0, int(to-max(at, next))+1)
	}
	return out
}

func (roco) Spread(dst, _ [][]float32, p Prompt, o *model.Observation) error {
	logs, squares := o.AllRows.Float64s(), o.Squares.Float64s()
	width, group := o.AllRows.Width(), o.AllRows.Dim0()/len(dst)
	for h, d := range dst {
		for j, seen := range rowsSeeing(p, o, h) {
			var mean, square float64
			for g := h * group; g < (h+1)*group; g++ {
				mean += math.Exp(logs[g*width+j])
				square += math.Exp(squares[g*width+j])
			}
			rows := float64(len(p.Tokens)) / float64(max(1, seen)) / float64(group)
			d[j] = float32(deviation(mean*rows, square*rows))
		}
	}
	return nil
}

// deviation is the standard deviation of what has the given moments.
func deviation(mean, square float64) float64 { return math.Sqrt(max(0, square-mean*mean)) }

// Protect implements Protector.
func (m roco) Protect(p Prompt) (sink, recent int) { return m.ends(p.Budget) }

func (m roco) ends(budget int) (sink, recent int) {
	recent = min(m.recent, budget)
	return min(m.sink, budget-recent), recent
}

// pooling is that of the means and of the deviations.
func (m roco) pooling(p Prompt) pooling {
	_, recent := m.ends(p.Budget)
	return pooling{m.kernel, recent}
}

// SelectSpread implements SpreadScorer.
func (m roco) SelectSpread(scores, spread []float32, budget int) []int32 {
	n := len(scores)
	if n <= budget {
		return upTo(0, n)
	}
	protected, sink, recent := m.protected(budget)
	ranked := append([]float32(nil), scores...)
	for _, j := range selectHead(spread, protected, sink, recent) {
		ranked[j] = float32(math.Inf(1))
	}
	return selectHead(ranked, budget, 0, 0)
}

// protected is how many entries are kept whatever their mean, sink and recent among them.
func (m roco) protected(budget int) (protected, sink, recent int) {
	sink, recent = m.ends(budget)
	return max(sink+recent, int(m.protect*float64(budget))), sink, recent
}

func (m roco) StartDecode(s *Session) DecodeState {
	if st := m.startOn(s); st != nil {
		return st
	}
	st := &rocoState{roco: m, budget: s.Prompt.Budget, ranks: m.pooling(s.Prompt), moments: make([][][]moments, len(s.kept))}
	kept, scores := s.Kept(), rowsOf(unpooled(s.scores))
	known := int32(len(s.history)) // positions below are those of rows that ran
	for l := range kept {
		st.moments[l] = make([][]moments, len(kept[l]))
		for h, idx := range kept[l] {
			pos := s.Cache.Positions(l, h)
			for i, j := range idx {
				mean, spread := float64(scores[l][h][j]), float64(s.spread[l][h][j])
				seen := float64(rowsSince(pos[i], known, s.Prompt.Config.Window(l)))
				st.moments[l][h] = append(st.moments[l][h], moments{seen, mean * seen, (spread*spread + mean*mean) * seen})
			}
		}
	}
	return st
}

// rowsSince is how many of the rows below position known have seen an entry.
func rowsSince(pos, known int32, window int) int32 {
	if seen := known - pos; window == 0 || int(seen) < window {
		return seen
	}
	return int32(window)
}

// moments of the attention that an entry has got.
type moments struct{ rows, sum, squares float64 }

func (m moments) mean() float64      { return m.sum / max(1, m.rows) }
func (m moments) deviation() float64 { return deviation(m.mean(), m.squares/max(1, m.rows)) }

type rocoState struct {
	roco
	budget  int
	ranks   pooling
	moments [][][]moments // [layer][kvHead][entry]
}

func (s *rocoState) Capture() model.Capture { return model.Capture{Windows: []int{1}} }

func (s *rocoState) Step(o *model.Observation) ([][]int32, error) {
	logs, width := o.Windows[0].Float64s(), o.Windows[0].Width()
	heads := s.moments[o.Layer]
	group := o.Windows[0].Dim0() / len(heads)
	var keep [][]int32
	for h := range heads {
		n := o.Cache.Entries(o.Layer, h)
		for len(heads[h]) < n {
			heads[h] = append(heads[h], moments{})
		}
		for j := range heads[h] {
			m := &heads[h][j]
			var sum, squares float64
			for g := h * group; g < (h+1)*group; g++ {
				a := math.Exp(logs[g*width+j])
				sum, squares = sum+a, squares+a*a
			}
			if math.IsInf(logs[h*group*width+j], -1) { // outside the window
				continue
			}
			m.rows, m.sum, m.squares = m.rows+1, m.sum+sum/float64(group), m.squares+squares/float64(group)
		}
		if n <= s.budget {
			continue
		}
		means, spread := make([]float32, n), make([]float32, n)
		for j, m := range heads[h] {
			means[j], spread[j] = float32(m.mean()), float32(m.deviation())
		}
		idx := s.SelectSpread(s.ranks.head(means), s.ranks.head(spread), s.budget)
		for to, from := range idx {
			heads[h][to] = heads[h][from]
		}
		heads[h] = heads[h][:len(idx)]
		keep = append(keep, idx)
	}
	return keep, nil
}

// Carry implements Carrier: moments of both turns' rows together.
func (s *rocoState) Carry(p Prompt, o *model.Observation, scores, spread [][]float32) {
	for h, known := range s.moments[o.Layer] {
		seen := rowsSeeing(p, o, h)
		for j, m := range known {
			rows, mean, deviates := float64(seen[j]), float64(scores[h][j]), float64(spread[h][j])
			m = moments{m.rows + rows, m.sum + mean*rows, m.squares + (deviates*deviates+mean*mean)*rows}
			scores[h][j], spread[h][j] = float32(m.mean()), float32(m.deviation())
		}
	}
}

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
	ranks  pooling
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
	st, known := &rocoDeviceState{roco: m, budget: s.Prompt.Budget, ranks: m.pooling(s.Prompt)}, int32(len(s.history))
	for l, scores := range unpooled(s.scores) {
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
	keep, to := s.selectSpreadOn(d, s.ranks.on(d, &s.now), s.budget), s.spare
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
