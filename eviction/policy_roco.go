package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model/runner"
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
		New: func(s Settings) (Method, error) {
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

// Plan scores by means and, as their spread, standard deviations.
func (m roco) Plan(p Prompt) Plan {
	sink, recent := m.ends(p.Budget)
	return Plan{
		Capture: runner.Capture{AllRows: true, Squares: true}, Sink: sink, Recent: recent,
		Pooling: Pooling{m.kernel, recent}, // of the means and of the deviations
		Score: func(s *Scores, o *runner.Observation) {
			s.Values, s.Spread = s.Alloc(), s.Alloc()
			s.Ops.ScoreMoments(s.Values, s.Spread, s.Entries, o.AllRows, o.Squares, passRows(p, o))
		},
		Select: m.selectEntries,
		Decode: m.decode,
	}
}

func (m roco) ends(budget int) (sink, recent int) {
	recent = min(m.recent, budget)
	return min(m.sink, budget-recent), recent
}

// selectEntries is a Plan's Select.
func (m roco) selectEntries(s *Scores, budget int) *kernels.Selection {
	sink, recent := m.ends(budget)
	protected := max(sink+recent, int(m.protect*float64(budget))) // whatever their mean, sink and recent among them
	return s.Ops.SelectSpread(s.Values, s.Spread, s.Entries, budget, protected, sink, recent)
}

func (m roco) decode(s *Session) *Decoding {
	known := int32(len(s.history)) // positions below belong to rows that ran
	st := &rocoState{roco: m, ranked: s.Ranked, stay: s.staying, budget: s.Prompt.Budget, on: make(map[kernels.Selector]*rocoScratch)}
	for l, scores := range unpooled(s.scores) {
		if scores == nil { // a layer that is left alone
			st.layers = append(st.layers, rocoLayer{})
			continue
		}
		ops := s.Cache.On(l).Selector()
		if st.on[ops] == nil {
			st.on[ops] = &rocoScratch{now: Scores{Ops: ops}}
		}
		x, seen := rocoLayer{on: st.on[ops], entries: lengthsOf(s.kept[l])}, make([][]int32, s.kept[l].Heads())
		for h := range seen {
			for _, pos := range s.Cache.Positions(l, h) {
				rows := known - pos
				if window := int32(s.Prompt.Config.Window(l)); window > 0 {
					rows = min(rows, window)
				}
				seen[h] = append(seen[h], rows)
			}
		}
		x.moments = ops.Alloc(kernels.F64, 3, len(seen), slices.Max(x.entries)+sumsRoom)
		ops.StartMoments(x.moments, scores.Values, scores.Spread, s.kept[l], seen)
		st.layers = append(st.layers, x)
	}
	return &Decoding{Capture: runner.Capture{Windows: []int{1}}, Step: st.step, Carry: st.carry}
}

type rocoState struct {
	roco
	ranked func(layer int, s *Scores)
	stay   func(layer int) *staying
	budget int
	layers []rocoLayer
	on     map[kernels.Selector]*rocoScratch
}

// rocoScratch is what the layers on a device share.
type rocoScratch struct {
	spare *kernels.Tensor // for what is kept of a layer; the layers take turns
	now   Scores          // of the layer whose turn it is
}

// rocoLayer are the moments of the attention that every entry of a layer has got.
type rocoLayer struct {
	on      *rocoScratch
	moments *kernels.Tensor // F64 [3, kvHeads, width]
	entries []int           // that have some
}

func (s *rocoState) step(o *runner.Observation) (*kernels.Selection, error) {
	x, entries := &s.layers[o.Layer], entriesOf(o.Cache, o.Layer)
	most, on := slices.Max(entries), x.on
	ops := on.now.Ops
	if most > x.moments.Shape[2] {
		wide := ops.Alloc(kernels.F64, 3, len(entries), most+sumsRoom)
		ops.Pick(wide, x.moments, everything(x.entries))
		x.moments = wide
	}
	if on.now.Values == nil || on.now.Values.Width() < most {
		on.now.Values, on.now.Spread = ops.Alloc(kernels.F32, len(entries), most+sumsRoom), ops.Alloc(kernels.F32, len(entries), most+sumsRoom)
	}
	on.now.Entries = entries
	ops.AddMoments(on.now.Values, on.now.Spread, x.moments, entries, x.entries, o.Windows[0])
	x.entries = entries
	s.ranked(o.Layer, &on.now)
	if most <= s.budget {
		return nil, nil
	}
	_, recent := s.ends(s.budget)
	on.now.stay = s.stay(o.Layer)
	pooled, to := Pooling{s.kernel, recent}.Of(&on.now), on.spare
	keep := on.now.stay.with(s.selectEntries(pooled.hidden(), pooled.restBudget(s.budget)))
	if to == nil || !slices.Equal(to.Shape, x.moments.Shape) {
		to = ops.Alloc(kernels.F64, x.moments.Shape...)
	}
	ops.Pick(to, x.moments, keep)
	on.spare, x.moments, x.entries = x.moments, to, lengthsOf(keep)
	return keep, nil
}

// carry makes moments of both turns' rows together.
func (s *rocoState) carry(p Prompt, o *runner.Observation, scores *Scores) {
	x := s.layers[o.Layer]
	x.on.now.Ops.CarryMoments(scores.Values, scores.Spread, scores.Entries, x.moments, x.entries, passRows(p, o))
}

// passRows describes the prompt's rows, with positions only where a window
// needs them.
func passRows(p Prompt, o *runner.Observation) kernels.PassRows {
	r := kernels.PassRows{Count: len(p.Tokens), Next: int(o.Cache.Next()), Window: p.Config.Window(o.Layer)}
	if r.Window > 0 {
		for h := range o.Cache.KVHeads() {
			r.Positions = append(r.Positions, o.Cache.Positions(o.Layer, h))
		}
	}
	return r
}
