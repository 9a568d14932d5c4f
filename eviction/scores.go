package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Scores are numbers per KV head and entry of a layer, in the memory of the backend that has
// computed them: a policy that scores and selects by Ops runs on every backend, and on a
// device the host sees none of the numbers.
type Scores struct {
	// Values are F32 [kvHeads, width]; of row h the first Entries[h] columns are in use.
	// Higher ones are kept, of equal ones the lower index. Where Score leaves nil, all are
	// equal.
	Values *kernels.Tensor
	// Spread is what a Plan's Select chooses by besides: a second number per entry, of the same
	// shape, or numbers per query head; else nil.
	Spread *kernels.Tensor
	// Entries is how many every KV head has.
	Entries []int
	// Ops are the operations on Values.
	Ops kernels.Selector

	sums *Scores  // that these were pooled from, where scores are pooled
	stay *staying // nil: no entry has to
}

// NewScores are scores for the entries of an observed layer, which have no values yet.
func NewScores(o *runner.Observation) *Scores {
	return &Scores{Entries: entriesOf(o.Cache, o.Layer), Ops: o.Cache.On(o.Layer).Selector()}
}

// Alloc makes room for a number per KV head and entry.
func (s *Scores) Alloc() *kernels.Tensor {
	return s.Ops.Alloc(kernels.F32, len(s.Entries), slices.Max(s.Entries))
}

// Observe makes the values the mean of one or two terms.
func (s *Scores) Observe(terms ...kernels.ScoreTerm) {
	s.Values = s.Alloc()
	s.Ops.Scores(s.Values, s.Entries, terms, false)
}

// FromHost makes the values what f writes to dst [kvHead][entry], zeros at first: for what no
// observation tells. They stay on the host, and so does what works on them.
func (s *Scores) FromHost(f func(dst [][]float32)) {
	s.Ops = s.Ops.HostSelector()
	s.Values = s.Alloc()
	if rows := s.Rows(); rows != nil {
		f(rows)
	}
}

// Rows are the values [kvHead][entry] on the host: read from a device, or the values' own
// memory; nil on a backend that only counts memory and has no numbers.
func (s *Scores) Rows() [][]float32 { return s.hostRows(s.Values) }

func (s *Scores) hostRows(t *kernels.Tensor) (out [][]float32) {
	if t == nil {
		return nil
	}
	t = t.OnHost()
	flat, width := t.F32(), t.Width()
	if flat == nil {
		return nil
	}
	for h, n := range s.Entries {
		out = append(out, flat[h*width:][:n])
	}
	return out
}

// Select keeps budgets[h] entries of every head: those that have to stay ([Keep]), the first sink, the last recent, and the
// highest values between them.
func (s *Scores) Select(budgets []int, sink, recent int) *kernels.Selection {
	if rows := s.Rows; s.stay != nil && rows() != nil {
		var keep [][]int32
		for h, row := range rows() {
			keep = append(keep, s.stay.chosen(h, row, budgets[h], sink, recent))
		}
		return kernels.Chosen(keep, s.Entries)
	}
	return s.Ops.Select(s.Values, s.Entries, budgets, sink, recent)
}

// Most is the number of entries of the longest head.
func (s *Scores) Most() int { return slices.Max(s.Entries) }

// Uniform are equal budgets of all heads.
func (s *Scores) Uniform(budget int) []int { return slices.Repeat([]int{budget}, len(s.Entries)) }

func entriesOf(c *kvcache.Cache, layer int) (entries []int) {
	for h := range c.KVHeads() {
		entries = append(entries, c.Entries(layer, h))
	}
	return entries
}

// hostScores are the scores of all layers on the host, nil of those that are left alone; nil of none.
func hostScores(scores []*Scores) (out [][][]float32) {
	for _, s := range scores {
		if s == nil {
			out = append(out, nil)
		} else {
			out = append(out, s.Rows())
		}
	}
	return out
}

// indicesOf are the selections of all layers on the host, nil of those that are left alone.
func indicesOf(kept []*kernels.Selection) (out [][][]int32) {
	for _, s := range kept {
		if s == nil {
			out = append(out, nil)
		} else {
			out = append(out, s.Indices())
		}
	}
	return out
}

// copied is an observation of a layer that outlives it.
func copied(c *kvcache.Cache, layer int, t *kernels.Tensor) *kernels.Tensor {
	ops := c.On(layer).Selector()
	out := ops.Alloc(t.DType, t.Shape...)
	ops.Copy(out, t)
	return out
}
