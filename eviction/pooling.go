package eviction

import "glimpse/kernels"

// Pooling is how scores are max-pooled before entries are ranked by them (SnapKV, Li et
// al. 2024, §4: what is attended to matters with what stands around it):
//
//	s'_j = max s_i over |i − j| ≤ ⌊kernel/2⌋
//
// It comes after the rows and the query heads of a group, or of a layer, have become one
// score. Neighbours are those in the cache, in order, which in later turns and steps need
// not be neighbours in the text. The last tail entries, which are kept whatever they
// score, neither lend their scores nor borrow any: they would give their own high ones to
// what is before them. A kernel of 1 or 0 changes nothing.
//
// Policies whose scores are one observation pool them in their terms. Sums
// over rows go on in later steps and turns, and stay as they are, so that a probability counts once,
// for the entry that it was paid to: what is pooled is what entries are ranked by (Plan.Pooling).
type Pooling struct {
	Kernel int // odd width
	Tail   int // last entries that are left out
}

// kernelOption lets users choose the kernel.
func kernelOption(value float64) Option {
	return Option{Name: "kernel", Default: value, Min: 1, Max: kernels.MaxPoolWidth, Whole: true, Odd: true, Doc: "width of the max-pool along the entries, odd; 1 for none"}
}

func (f Pooling) pools() bool { return f.Kernel > 1 }

// Of are the pooled values and spreads: new ones where there is something to pool.
func (f Pooling) Of(s *Scores) *Scores {
	if !f.pools() {
		return s
	}
	pooled := &Scores{Entries: s.Entries, Ops: s.Ops, sums: s, stay: s.stay, Values: f.poolTensor(s.Ops, s.Values, s.Entries)}
	if s.Spread != nil {
		pooled.Spread = f.poolTensor(s.Ops, s.Spread, s.Entries)
	}
	return pooled
}

// poolTensor is the pooled scores: new ones where there is something to pool.
func (f Pooling) poolTensor(ops kernels.Selector, scores *kernels.Tensor, entries []int) *kernels.Tensor {
	if !f.pools() {
		return scores
	}
	pooled := ops.Alloc(kernels.F32, scores.Shape...)
	ops.PoolScores(pooled, scores, entries, f.Kernel, f.Tail)
	return pooled
}

// unpooled are the sums that the scores of all layers were pooled from.
func unpooled(scores []*Scores) (out []*Scores) {
	for _, s := range scores {
		if s != nil && s.sums != nil {
			s = s.sums
		}
		out = append(out, s)
	}
	return out
}
