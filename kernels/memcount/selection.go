package memcount

import (
	"runtime"
	"slices"

	"glimpse/kernels"
)

// selector counts the memory that a Selector takes. It has no numbers: every head keeps its
// first entries, as many as it may. What lies on the host is not counted.
type selector struct {
	*Counter
	host bool
}

// Selector counts what a Selector takes.
func (d *Counter) Selector() kernels.Selector { return selector{Counter: d} }

// HostSelector counts what a Selector on the host takes of a device.
func (d *Counter) HostSelector() kernels.Selector { return selector{d, true} }

// HostSelector is s on the host.
func (s selector) HostSelector() kernels.Selector {
	s.host = true
	return s
}

// Alloc makes a tensor of the device, or the shape of one of the host.
func (d selector) Alloc(t kernels.DType, shape ...int) *kernels.Tensor {
	if d.host || !d.Traits().Device {
		return kernels.NewShape(t, shape...)
	}
	return d.Counter.Alloc(t, shape...)
}

// first selects so many first entries of every head.
func (d selector) first(entries, budgets []int) *kernels.Selection {
	indices, most := make([][]int32, len(entries)), 0
	for h, n := range entries {
		indices[h] = kernels.Ascending(min(n, budgets[h]))
		most = max(most, len(indices[h]))
	}
	s := kernels.Chosen(indices, entries)
	s.Counted = d.Alloc(kernels.I32, len(entries), most)
	return s
}

func (selector) Scores(*kernels.Tensor, []int, []kernels.ScoreTerm, bool)                {}
func (selector) MeanScores(*kernels.Tensor, []int, int, bool)                            {}
func (selector) PoolScores(to, from *kernels.Tensor, _ []int, _, _ int)                  {}
func (selector) KeyScores(*kernels.Tensor, []kernels.KV)                                 {}
func (selector) AddScores(_ *kernels.Tensor, _, _ []int, _ *kernels.Tensor)              {}
func (selector) CarryScores(_, _ *kernels.Tensor, _ []int)                               {}
func (selector) MaxScores(acc, other *kernels.Tensor)                                    {}
func (selector) Compact(dst, src []kernels.KV, s *kernels.Selection)                     {}
func (selector) Pick(to, from *kernels.Tensor, s *kernels.Selection)                     {}
func (selector) PageBounds(*kernels.PageHeads, []kernels.KV, []int)                      {}
func (selector) AddValues(*kernels.Tensor, *kernels.PageHeads, []kernels.KV, []int)      {}
func (selector) MergeStep([]kernels.KV, *kernels.Selection, *kernels.Tensor, float64)    {}
func (selector) MergeRecent([]kernels.KV, *kernels.Tensor, int, int, [][]float64)        {}
func (selector) StartMoments(_, _, _ *kernels.Tensor, _ *kernels.Selection, _ [][]int32) {}
func (selector) ShareMean(_, _ *kernels.Tensor, _ *kernels.Selection, _ *kernels.Tensor, _ *kernels.PageHeads) {
}

func (selector) ScoreMoments(_, _ *kernels.Tensor, _ []int, _, _ *kernels.Tensor, _ kernels.PassRows) {
}

func (selector) AddMoments(_, _, _ *kernels.Tensor, _, _ []int, _ *kernels.Tensor) {}

func (selector) CarryMoments(_, _ *kernels.Tensor, _ []int, _ *kernels.Tensor, _ []int, _ kernels.PassRows) {
}

func (selector) EstimatePages(_, _, _ *kernels.Tensor, _ *kernels.PageHeads, _ kernels.Estimate, _ *kernels.Tensor) {
}

func (d selector) Select(_ *kernels.Tensor, entries, budgets []int, _, _ int) *kernels.Selection {
	return d.first(entries, budgets)
}

func (d selector) SelectSpread(_, _ *kernels.Tensor, entries []int, budget, _, _, _ int) *kernels.Selection {
	return d.first(entries, slices.Repeat([]int{budget}, len(entries)))
}

func (d selector) Compose(before, s *kernels.Selection, _ []int) *kernels.Selection {
	return d.first(s.Lens, s.Lens)
}

func (d selector) SelectPages(_, _ *kernels.Tensor, p *kernels.PageHeads) *kernels.Selection {
	var lens []int
	for _, x := range p.Heads {
		lens = append(lens, min(x.Want, x.Entries-x.From))
	}
	return d.first(lens, lens)
}

// ShareBudget shares evenly.
func (selector) ShareBudget(_ *kernels.Tensor, entries, own []int, _, _, pool int) []int {
	extra := make([]int, len(entries))
	for h := range extra {
		extra[h] = (pool + h) / len(extra)
	}
	return extra
}

func (selector) AttentionVariances(_ *kernels.Tensor, entries []int, _ int) []float64 {
	return make([]float64, len(entries))
}

// MergeEvicted takes norms of the keys and, for what is evicted, the nearest key and its
// similarity; on the host the keys of one head that are compared at once.
func (d selector) MergeEvicted(past []kernels.KV, s *kernels.Selection) *kernels.Tensor {
	entries, evicted, kept := 0, 0, 0
	for h, kv := range past {
		n := kv.Entries()
		entries, evicted, kept = max(entries, n), max(evicted, n-s.Lens[h]), max(kept, s.Lens[h])
	}
	if d.Traits().Device {
		d.temp(int64(len(past)) * int64(8*entries+12*evicted))
	} else {
		dim := past[0].K.Width()
		conserved := d.Counter.Alloc(d.compute, kept, dim)
		part := d.Counter.Alloc(d.compute, min(kernels.MergeBlock, evicted), dim+kept)
		runtime.KeepAlive([]*kernels.Tensor{conserved, part})
	}
	return d.Alloc(kernels.F64, len(past))
}
