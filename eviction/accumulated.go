package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model/runner"
)

// Accumulated is the attention probability of every entry in the cache, summed over all rows
// so far and averaged over the heads of the group (D2O eq. 6), by layer.
type Accumulated struct {
	ranked func(layer int, s *Scores)
	stay   func(layer int) *staying
	layers []*Scores
	spare  map[kernels.Selector]*kernels.Tensor // for what is kept of a layer; the layers of a device take turns

	// joint holds the sums of all layers, where these are its rows; jointSpare is for
	// what is kept of them.
	joint, jointSpare *kernels.Tensor
	rows              []*kernels.Tensor // of joint, by layer
}

// NewAccumulated starts from the scores of a prompt, which are such sums.
func NewAccumulated(s *Session) *Accumulated {
	a := &Accumulated{ranked: s.Ranked, stay: s.staying, spare: make(map[kernels.Selector]*kernels.Tensor)}
	for l, scores := range unpooled(s.scores) {
		if scores == nil { // a layer that is left alone
			a.layers = append(a.layers, nil)
			continue
		}
		sums := &Scores{Ops: s.Cache.On(l).Selector(), Entries: lengthsOf(s.kept[l])}
		sums.Values = sums.Ops.Alloc(kernels.F32, len(sums.Entries), sums.Most()+sumsRoom)
		sums.Ops.Pick(sums.Values, scores.Values, s.kept[l])
		a.layers = append(a.layers, sums)
	}
	return a
}

// sumsRoom is by how many columns full sums grow.
const sumsRoom = 16

// lengthsOf are how many entries every head of a selection keeps.
func lengthsOf(s *kernels.Selection) []int {
	out := make([]int, s.Heads())
	for h := range out {
		out[h] = s.Len(h)
	}
	return out
}

// everything selects the first entries of every head.
func everything(entries []int) *kernels.Selection {
	all := make([][]int32, len(entries))
	for h, n := range entries {
		all[h] = upTo(0, n)
	}
	return kernels.HostSelection(all)
}

// accumulated is the plan that scores by the sums.
func accumulated(p Prompt) Plan {
	return Plan{Capture: runner.Capture{AllRows: true}, Score: func(s *Scores, o *runner.Observation) { accumulate(s, o.AllRows, len(p.Tokens)) }}
}

// accumulate turns the observed mean over so many rows into their sum, so that what
// decoding adds has the same unit.
func accumulate(s *Scores, logScores *kernels.Tensor, rows int) {
	s.Observe(kernels.ScoreTerm{LogScore: logScores, Factor: float32(rows)})
}

// Decoding begins a response: of every step the attention is observed, and the next turn goes
// on with the sums. What a step evicts is for the caller to say.
func (a *Accumulated) Decoding() *Decoding {
	return &Decoding{Capture: runner.Capture{Windows: []int{1}}, Carry: a.carry}
}

// Add takes in the attention of a decoding step and returns the layer's sums.
func (a *Accumulated) Add(o *runner.Observation) *Scores { return a.AddScores(o, o.Windows[0]) }

// AddScores adds a decoding step's scores, which are logarithms [heads, width]. It returns the layer's sums.
func (a *Accumulated) AddScores(o *runner.Observation, logScores *kernels.Tensor) *Scores {
	sums, entries := a.layers[o.Layer], entriesOf(o.Cache, o.Layer)
	if most := slices.Max(entries); most > sums.Values.Width() {
		wide := sums.Ops.Alloc(kernels.F32, len(entries), most+sumsRoom)
		sums.Ops.Pick(wide, sums.Values, everything(sums.Entries))
		sums.Values = wide
	}
	sums.Ops.AddScores(sums.Values, entries, sums.Entries, logScores)
	sums.Entries, sums.stay = entries, a.stay(o.Layer)
	a.ranked(o.Layer, sums)
	return sums
}

// AddAll is Add of all layers at once, which are on one device and then lie in one tensor.
func (a *Accumulated) AddAll(scores *kernels.Tensor, entries []int) *Scores {
	heads, ops := len(entries)/len(a.layers), a.layers[0].Ops
	var known []int
	joined := a.joint != nil && a.joint.Width() >= slices.Max(entries)
	for l, sums := range a.layers {
		known = append(known, sums.Entries...)
		joined = joined && a.rows[l] == sums.Values
	}
	if !joined {
		joint := ops.Alloc(kernels.F32, len(entries), slices.Max(entries)+sumsRoom)
		for l, sums := range a.layers {
			ops.Pick(joint.Rows(l*heads, (l+1)*heads), sums.Values, everything(sums.Entries))
		}
		a.setJoint(joint)
	}
	ops.AddScores(a.joint, entries, known, scores)
	for l, sums := range a.layers {
		sums.Entries = entries[l*heads : (l+1)*heads]
	}
	return &Scores{Ops: ops, Entries: entries, Values: a.joint}
}

func (a *Accumulated) setJoint(joint *kernels.Tensor) {
	a.joint, a.rows = joint, nil
	heads := joint.Dim0() / len(a.layers)
	for l, sums := range a.layers {
		sums.Values = joint.Rows(l*heads, (l+1)*heads)
		a.rows = append(a.rows, sums.Values)
	}
}

// RetainAll leaves what was selected of all layers, after AddAll.
func (a *Accumulated) RetainAll(s *kernels.Selection) {
	to, ops := a.jointSpare, a.layers[0].Ops
	if to == nil || !slices.Equal(to.Shape, a.joint.Shape) {
		to = ops.Alloc(kernels.F32, a.joint.Shape...)
	}
	ops.Pick(to, a.joint, s)
	a.jointSpare = a.joint
	a.setJoint(to)
	lengths := lengthsOf(s)
	for _, sums := range a.layers {
		heads := len(sums.Entries)
		sums.Entries, lengths = lengths[:heads:heads], lengths[heads:]
	}
}

// Retain leaves what was selected of a layer.
func (a *Accumulated) Retain(layer int, s *kernels.Selection) {
	sums := a.layers[layer]
	to := a.spare[sums.Ops]
	if to == nil || !slices.Equal(to.Shape, sums.Values.Shape) {
		to = sums.Ops.Alloc(kernels.F32, sums.Values.Shape...)
	}
	sums.Ops.Pick(to, sums.Values, s)
	a.spare[sums.Ops], sums.Values = sums.Values, to
	sums.Entries = lengthsOf(s)
}

// carry adds the sums of the turns before to the sums of a turn's prompt.
func (a *Accumulated) carry(_ Prompt, o *runner.Observation, s *Scores) {
	s.Ops.CarryScores(s.Values, a.layers[o.Layer].Values, a.layers[o.Layer].Entries)
}
