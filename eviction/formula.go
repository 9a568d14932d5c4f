package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

// formula is how a layer's scores come from its observation. Methods that have one
// are scored on a device where there is one, and on the host from the same formula.
type formula struct {
	terms    []kernels.ScoreTerm // the scores are their mean; with keys there are none
	allHeads bool                // of every term first the mean over all KV heads
	keys     bool                // the scores are those of the keys' norms
}

// formulated is a Method whose Score is a formula.
type formulated interface {
	Method
	// formula is what Score computes; ok is false where that is none.
	formula(p Prompt, o *model.Observation) (f formula, ok bool)
}

// one is the formula of a single term.
func one(scores *kernels.Tensor, how grouping) formula {
	return formula{terms: []kernels.ScoreTerm{{LogScore: scores, Group: kernels.Grouping(how)}}}
}

// pooled max-pools the last term but for the last tail entries of every head.
func (f formula) pooled(kernel, tail int) formula {
	f.terms[len(f.terms)-1].Kernel, f.terms[len(f.terms)-1].Tail = kernel, tail
	return f
}

// score evaluates a formula of terms on the host.
func (f formula) score(dst [][]float32) {
	for i, t := range f.terms {
		to := dst
		if i > 0 {
			to = make([][]float32, len(dst))
			for h := range to {
				to[h] = make([]float32, len(dst[h]))
			}
		}
		grouping(t.Group).reduce(to, t.LogScore)
		if t.Factor != 0 {
			for _, d := range to {
				for j := range d {
					d[j] *= t.Factor
				}
			}
		}
		if f.allHeads {
			meanOfHeads(to, t.Group == kernels.GroupLogMean)
		}
		for h, d := range to {
			copy(to[h], pooling{t.Kernel, t.Tail}.head(d))
		}
		if i > 0 {
			for h, d := range dst {
				for j := range d {
					d[j] = (d[j] + to[h][j]) / 2
				}
			}
		}
	}
}

// meanOfHeads gives all heads the mean of their scores, of logarithms its logarithm.
func meanOfHeads(scores [][]float32, logarithms bool) {
	mean := scores[0]
	if logarithms {
		copy(mean, logMean(make([]float32, len(mean)), scores))
	} else {
		for _, d := range scores[1:] {
			for j, v := range d {
				mean[j] += v
			}
		}
		for j := range mean {
			mean[j] /= float32(len(scores))
		}
	}
	for _, d := range scores[1:] {
		copy(d, mean)
	}
}

// scoreBy is Score of a formulated method of terms.
func scoreBy(m formulated, dst [][]float32, p Prompt, o *model.Observation) error {
	f, _ := m.formula(p, o)
	f.score(dst)
	return nil
}

// on evaluates a formula on the device, into memory of its own.
func (f formula) on(d kernels.Selector, o *model.Observation) *layerScores {
	s := &layerScores{entries: entriesOf(o)}
	s.device = d.Alloc(kernels.F32, len(s.entries), slices.Max(s.entries))
	if f.keys {
		d.KeyScores(s.device, o.Cache.View(o.Layer))
	} else {
		d.Scores(s.device, s.entries, f.terms, f.allHeads)
	}
	return s
}

func entriesOf(o *model.Observation) []int {
	entries := make([]int, o.Cache.KVHeads())
	for h := range entries {
		entries[h] = o.Cache.Entries(o.Layer, h)
	}
	return entries
}

// deviceOf is the device that can score and select, nil where the host does.
func deviceOf(c *model.Cache) kernels.Selector { return c.Backend().Selector() }

// layerScores are the scores of a layer where they were computed.
type layerScores struct {
	host    [][]float32 // [kvHead][entry]
	device  *kernels.Tensor
	spread  *kernels.Tensor // on the device, of a deviceSpreader
	entries []int           // of the rows of device
	sums    *layerScores    // that these were pooled from, of a pooler that pools
}

// rows are the scores on the host, read from the device at the first call.
func (s *layerScores) rows() [][]float32 {
	if s.host == nil {
		flat, width := s.device.Float32s(), s.device.Width()
		for h, n := range s.entries {
			s.host = append(s.host, flat[h*width:][:n])
		}
	}
	return s.host
}

// rowsOf are the scores of all layers on the host; nil of none.
func rowsOf(scores []*layerScores) (out [][][]float32) {
	for _, s := range scores {
		out = append(out, s.rows())
	}
	return out
}

// indicesOf are the selections of all layers on the host.
func indicesOf(kept []*kernels.Selection) (out [][][]int32) {
	for _, s := range kept {
		out = append(out, s.Indices())
	}
	return out
}

// deviceAllocator is a HeadAllocator that can work where the scores are.
type deviceAllocator interface {
	headBudgetsOn(d kernels.Selector, p Prompt, budget int, s *layerScores) []int
}

// deviceCarrier is a Carrier of scores that stay on the device.
type deviceCarrier interface {
	carryOn(d kernels.Selector, p Prompt, o *model.Observation, s *layerScores)
}

// deviceSpreader is a SpreadScorer that can score and select where the observation is.
type deviceSpreader interface {
	scoreOn(d kernels.Selector, p Prompt, o *model.Observation) *layerScores
	selectSpreadOn(d kernels.Selector, s *layerScores, budget int) *kernels.Selection
}

// deviceMerger is a Merger that can work where the cache is. The thresholds are F64
// [kvHeads].
type deviceMerger interface {
	mergeOn(d kernels.Selector, c *model.Cache, layer int, keep *kernels.Selection) (thresholds *kernels.Tensor)
}

// deviceState is a DecodeState that selects where the scores are.
type deviceState interface {
	stepOn(d kernels.Selector, o *model.Observation) (*kernels.Selection, error)
}

// jointState is a deviceState that may take all layers of a recorded step at once, whose
// scores are [layers·heads, width], in the same memory: operations on so few numbers take
// longer to start than to run. nil keeps everything.
type jointState interface {
	deviceState
	stepAllOn(d kernels.Selector, scores *kernels.Tensor, entries []int) *kernels.Selection
}

// formulaOn is a request's formula where the device can score and select by it.
func (r *request) formulaOn(d kernels.Selector, o *model.Observation) (f formula, ok bool) {
	m, ok := r.method.(formulated)
	if !ok || d == nil {
		return f, false
	}
	if _, ok := r.method.(SpreadScorer); ok {
		return f, false
	}
	if _, ok := r.method.(HeadAllocator); ok {
		if _, ok := r.method.(deviceAllocator); !ok {
			return f, false
		}
	}
	if !r.carriesOn() {
		return f, false
	}
	return m.formula(r.prompt, o)
}

// carriesOn tells that nothing before a request needs its scores on the host.
func (r *request) carriesOn() bool {
	_, ok := r.carry.(deviceCarrier)
	return r.carry == nil || ok
}

// spreaderOn is a request's method where it can choose by two numbers on the device.
func (r *request) spreaderOn(d kernels.Selector) (deviceSpreader, bool) {
	m, ok := r.method.(deviceSpreader)
	return m, ok && d != nil && r.carriesOn()
}

// selectOn is selectLayer on a device.
func selectOn(d kernels.Selector, m Method, p Prompt, layer int, s *layerScores) *kernels.Selection {
	budget, sink, recent := layerBudget(m, p, layer)
	budgets := slices.Repeat([]int{budget}, len(s.entries))
	if a, ok := m.(deviceAllocator); ok {
		budgets = a.headBudgetsOn(d, p, budget, s)
	}
	// As of selectHead: a head that may keep less than what is protected.
	least := budget
	for h, b := range budgets {
		if b < s.entries[h] {
			least = min(least, b)
		}
	}
	if sink+recent <= least {
		return d.Select(s.device, s.entries, budgets, sink, recent)
	}
	keep := make([][]int32, len(s.entries))
	for h, row := range s.rows() {
		keep[h] = selectHead(row, budgets[h], sink, recent)
	}
	return kernels.HostSelection(keep)
}

// copied is an observation that outlives its layer.
func copied(c *model.Cache, t *kernels.Tensor) *kernels.Tensor {
	if deviceOf(c) == nil {
		return kernels.FromF64(t.Float64s(), t.Shape...)
	}
	out := c.Backend().Alloc(t.DType, t.Shape...)
	c.Backend().Copy(out, t)
	return out
}
