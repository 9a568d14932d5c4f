package eviction

import "glimpse/kernels"

// pooling is how scores are max-pooled before entries are ranked by them (SnapKV, Li et
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
// Policies whose scores are those of one observation pool them in their formula. Sums
// over rows go on in later steps and turns, and stay as they are: see [pooler].
type pooling struct{ kernel, tail int }

// pooler is a Method that accumulates: its Score and its sums are not pooled, so that a
// probability counts once, for the entry that it was paid to. What entries are ranked by,
// after the prompt and at every step that evicts, is the max-pool of the sums.
type pooler interface{ pooling(p Prompt) pooling }

// poolingOf is that of a pooler or of a method that scores by one.
func poolingOf(m Method, p Prompt) pooling {
	if x, ok := as[pooler](m); ok {
		return x.pooling(p)
	}
	return pooling{}
}

// kernelOption lets users choose the kernel.
func kernelOption(value float64) Option {
	return Option{Name: "kernel", Default: value, Min: 1, Max: kernels.MaxPoolWidth, Whole: true, Odd: true, Doc: "width of the max-pool along the entries, odd; 1 for none"}
}

func (f pooling) pools() bool { return f.kernel > 1 }

// head is the pooled scores of a head: new ones where there is something to pool.
func (f pooling) head(scores []float32) []float32 {
	if !f.pools() {
		return scores
	}
	pooled := append([]float32(nil), scores...)
	end := max(0, len(scores)-f.tail)
	kernels.MaxPool(pooled[:end], scores[:end], f.kernel)
	return pooled
}

// layer is the same of all heads; nil of none.
func (f pooling) layer(scores [][]float32) [][]float32 {
	if !f.pools() {
		return scores
	}
	var out [][]float32
	for _, head := range scores {
		out = append(out, f.head(head))
	}
	return out
}

// on is layer on a device, of spreads as well where there are some.
func (f pooling) on(d kernels.Selector, s *layerScores) *layerScores {
	if !f.pools() {
		return s
	}
	pooled := &layerScores{entries: s.entries, device: f.tensor(d, s.device, s.entries), sums: s}
	if s.spread != nil {
		pooled.spread = f.tensor(d, s.spread, s.entries)
	}
	return pooled
}

// tensor is the pooled scores of a device: new ones where there is something to pool.
func (f pooling) tensor(d kernels.Selector, scores *kernels.Tensor, entries []int) *kernels.Tensor {
	if !f.pools() {
		return scores
	}
	pooled := d.Alloc(kernels.F32, scores.Shape...)
	d.PoolScores(pooled, scores, entries, f.kernel, f.tail)
	return pooled
}

// pooling is how a layer's scores are pooled when they are observed: not yet where the
// layer's budget waits for the others, since what is recent goes by it.
func (r *request) pooling() pooling {
	if _, waits := r.method.(CrossLayerAllocator); waits {
		return pooling{}
	}
	return poolingOf(r.method, r.prompt)
}

// rank is what entries are ranked by, on the host.
func (r *request) rank(scores [][]float32) *layerScores {
	return r.pooling().onHost(scores)
}

// onHost is on of scores on the host.
func (f pooling) onHost(scores [][]float32) *layerScores {
	out := &layerScores{host: f.layer(scores)}
	if f.pools() {
		out.sums = &layerScores{host: scores}
	}
	return out
}

// unpooled are the sums that the scores of all layers were pooled from.
func unpooled(scores []*layerScores) (out []*layerScores) {
	for _, s := range scores {
		if s.sums != nil {
			s = s.sums
		}
		out = append(out, s)
	}
	return out
}

var (
	_ pooler = h2o{}
	_ pooler = d2o{}
	_ pooler = roco{}
)
