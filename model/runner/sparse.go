package runner

import (
	"fmt"
	"math"

	"glimpse/kernels"
	"glimpse/model/kvcache"
)

// SparseStep is a decoding step in one layer before its attention is computed.
// Who gets it chooses the entries that the step attends to; only those are read.
type SparseStep struct {
	Layer   int             // whose pairs are read
	Reader  int             // the layer that reads them, which may be one after it
	Cache   *kvcache.Cache  // the step's own pairs are the last entries
	Queries *kernels.Tensor // [1, heads, headDim], rotated
	// First is, per KV head, the first entry that the step sees: more than 0 where
	// the layer has a sliding window.
	First []int

	// Entries are the ascending indices to attend to, per KV head, or per query head where
	// every one of a group has its own, at least one each; nil attends to everything.
	Entries [][]int32
	// Selection is the same where it lies on a device that attends to chosen entries: of
	// every KV head some from First on.
	Selection *kernels.Selection
	// After, where it is set, may change the attention's output [1, heads·headDim].
	After func(out *kernels.Tensor)

	runner *Runner
	attend *kernels.Attend
}

// Backend is what operations of the step run on: where the step is recorded, another one
// than the cache's, with the same memory. What they allocate there holds for this layer
// of this step.
func (s *SparseStep) Backend() kernels.Backend { return s.runner.on }

// Scores are the logarithms of the attention probabilities [heads, at least entries] of
// the step with nothing left out, as in an Observation. They read every key.
func (s *SparseStep) Scores() *kernels.Tensor {
	r := s.runner
	if !r.prepares {
		scores, _ := r.observeAttention(nil, s.attend, false, r.arena)
		return scores
	}
	b, most := r.on, 0
	for _, kv := range s.attend.Past {
		most = max(most, kv.Entries())
	}
	scores, lse := b.Alloc(b.Compute(), s.attend.Heads(), kernels.EntryBucket(most)), b.Alloc(b.Compute(), s.attend.Heads(), 1)
	b.ObserveAttention(nil, lse, scores, s.attend)
	return scores
}

// Logits are what estimates know of the step's attention.
func (s *SparseStep) Logits() (l kernels.Logits) {
	l.SoftCap, l.Sinks = s.attend.SoftCap, s.attend.Sinks
	if s.attend.Scale != 1/math.Sqrt(float64(s.attend.HeadDim())) {
		l.Scale = s.attend.Scale
	}
	return l
}

// SparseAttention chooses what a decoding step attends to.
type SparseAttention func(s *SparseStep) error

// restrict lets a choose its entries. Where the backend attends to chosen entries
// where they lie, they are returned with a; else the result has its own copies of the
// chosen pairs and no others, and chosen is nil.
func (r *Runner) restrict(choose SparseAttention, cache *kvcache.Cache, layer int, a *kernels.Attend) (_ *kernels.Attend, chosen *kernels.Selection, after func(out *kernels.Tensor), err error) {
	if choose == nil {
		return a, nil, nil, nil
	}
	s := &SparseStep{Layer: r.Model.Config.KVLayer(layer), Reader: layer, Cache: cache, Queries: a.Q, First: make([]int, len(a.Past)), runner: r, attend: a}
	for h, kv := range a.Past {
		s.First[h] = kvcache.FirstSeen(kv.Positions, a.Positions[0], a.Window)
	}
	if err := choose(s); err != nil {
		return nil, nil, nil, fmt.Errorf("layer %d: %w", layer, err)
	}
	if s.Selection != nil {
		return a, s.Selection, s.After, nil
	}
	if s.Entries == nil {
		return a, nil, s.After, nil
	}
	if kvHeads := len(a.Past); len(s.Entries) == a.Heads() && a.Heads() > kvHeads {
		own := *a // the same pairs, as if every query head were a group
		own.Past = make([]kernels.KV, a.Heads())
		for q := range own.Past {
			own.Past[q] = a.Past[q*kvHeads/a.Heads()]
		}
		a = &own
	}
	if len(s.Entries) != len(a.Past) {
		return nil, nil, nil, fmt.Errorf("sparse attention in layer %d: entries of %d heads, want those of %d KV heads or %d heads", layer, len(s.Entries), len(s.First), a.Heads())
	}
	for h, idx := range s.Entries {
		if err := kvcache.CheckAscending(idx, a.Past[h].Entries()); err != nil {
			return nil, nil, nil, fmt.Errorf("sparse attention in layer %d head %d: %w", layer, h, err)
		}
		if len(idx) == 0 || int(idx[len(idx)-1]) < s.First[h*len(s.First)/len(a.Past)] {
			return nil, nil, nil, fmt.Errorf("sparse attention in layer %d head %d: none of %d entries is seen", layer, h, len(idx))
		}
	}
	return a, kernels.HostSelection(s.Entries), s.After, nil
}
