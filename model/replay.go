package model

import (
	"context"
	"slices"

	"glimpse/kernels"
)

// replayer runs decoding steps that nobody looks into as one recorded graph: what
// changes from token to token is in device memory (kernels.Steps), so that a token
// costs one launch. It is recorded anew only when the entries outgrow the cut of the
// attention, or the table of angles the positions.
//
// The first step of a runner is not recorded: it loads what the device needs.
type replayer struct {
	graph  kernels.Graph
	step   kernels.Stepper
	steps  *kernels.Steps
	run    *Runner         // records: its operations go into graph
	logits *kernels.Tensor // [1, vocab], of the last step

	recorded bool
	rope     *kernels.RoPETable
	pairs    kernels.DType
	buckets  []int // per layer
	// synced is the version of the cache that steps holds.
	synced uint64
}

// newReplayer returns nil where the device has no graphs.
func newReplayer(m *Model) *replayer {
	g := kernels.NewGraph(m.Backend)
	if g == nil {
		return nil
	}
	step, ok := g.Backend().(kernels.Stepper)
	if !ok {
		g.Close()
		return nil
	}
	view := &Model{Name: m.Name, Config: m.Config, Network: m.Network, Backend: step, cacheDType: m.cacheDType, cut: true}
	return &replayer{graph: g, step: step, steps: step.NewSteps(m.Config.Layers, m.Config.KVHeads), run: view.NewRunner()}
}

// replays tells whether a pass over n tokens is a step that can be replayed: nothing
// of it is observed but where its pairs are.
func (r *Runner) replays(n int, opt *PrefillOptions) bool {
	c := &opt.Capture
	if n != 1 || opt.CacheOnly || opt.Sparse != nil || c.AllRows || c.Squares || c.Queries ||
		len(c.Windows)+len(c.Probes)+len(c.PeakWindows)+len(c.PeakProbes) > 0 {
		return false
	}
	switch {
	case r.noReplay:
		return false
	case !r.stepped:
		r.stepped = true
		return false
	case r.replayer == nil:
		r.replayer = newReplayer(r.Model)
		r.noReplay = r.replayer == nil
	}
	return !r.noReplay
}

// replay runs a step on the recorded graph. ok is false where it cannot be recorded;
// nothing has happened then.
func (r *Runner) replay(ctx context.Context, cache *Cache, token int32, observe Observer) (logits []float32, ok bool, err error) {
	p := r.replayer
	if !p.prepare(r.Model, cache) {
		r.replayer, r.noReplay = nil, true
		return nil, false, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, true, err
	}
	pos := cache.next
	if p.synced != cache.version {
		past := make([][]kernels.KV, len(cache.heads))
		for l := range past {
			past[l] = cache.View(l)
		}
		p.step.SetSteps(p.steps, pos, past)
	}
	p.step.SetStep(p.steps, token, firstEntries(&r.Model.Config, cache))
	p.graph.Replay()
	for l := range cache.heads {
		for i := range cache.heads[l] {
			h := &cache.heads[l][i]
			h.pos = append(h.pos, pos)
		}
	}
	cache.changed()
	p.synced = cache.version
	if observe != nil {
		for l := range cache.heads {
			if err := observe(&Observation{Layer: l, Cache: cache}); err != nil {
				return nil, true, err
			}
		}
	}
	cache.next++
	logits, err = r.finite(p.logits)
	return logits, true, err
}

// prepare makes room in the cache and records the step where what is recorded does
// not serve.
func (p *replayer) prepare(m *Model, cache *Cache) bool {
	buckets := make([]int, len(cache.heads))
	longest := make([]int, len(cache.heads))
	for l := range cache.heads {
		for i := range cache.heads[l] {
			h := &cache.heads[l][i]
			cache.makeRoom(h, 1)
			longest[l] = max(longest[l], len(h.pos)+1)
		}
		buckets[l] = kernels.EntryBucket(longest[l])
	}
	table := m.rope([]int32{cache.next})
	if !p.recorded || p.rope != table || p.pairs != cache.dtype || !slices.Equal(p.buckets, buckets) {
		p.rope, p.pairs, p.buckets = table, cache.dtype, buckets
		p.recorded = p.graph.Record(func() { p.record(longest) })
	}
	return p.recorded
}

// record is one decoding step: the operations of prefillPass for one row.
func (p *replayer) record(longest []int) {
	r, b, m := p.run, p.step, p.run.Model
	c := &m.Config
	r.arena.Release(nil)
	b.StartStep(p.steps)
	x := r.alloc(1, c.Hidden)
	b.StepGather(x, m.Network.Embedding, p.steps)
	for l := range m.Network.Layers {
		layer := &m.Network.Layers[l]
		mark := r.arena.Mark()
		h := r.norm(x, layer.AttentionNorm)
		rotated := func(module Module, heads int, n Norm) *kernels.Tensor {
			y := r.headNorm(r.linear(l, module, h, noLowRank).Reshape(1, heads, c.HeadDim), n)
			b.StepRoPE(y, p.steps, p.rope)
			return y
		}
		q, k := rotated(QProj, c.Heads, layer.QueryNorm), rotated(KProj, c.KVHeads, layer.KeyNorm)
		v, out := r.value(l, h, noLowRank), r.alloc(1, c.Heads*c.HeadDim)
		b.StepAttention(out, q, k, v, p.steps, l, p.pairs, longest[l], c.Window(l) > 0, r.scale())
		r.finish(l, x, h, out, noLowRank)
		r.arena.Release(mark)
	}
	h := r.norm(x, m.Network.FinalNorm)
	p.logits = r.alloc(1, c.Vocab)
	b.Linear(p.logits, h, m.Network.Head.Weight, m.Network.Head.Bias, 1, 0)
}

// firstEntries are, for a model with sliding windows, the first entries of all heads
// that the next position sees; else nil.
func firstEntries(c *Config, cache *Cache) []int32 {
	if c.Windows == nil {
		return nil
	}
	var first []int32
	for l := range cache.heads {
		for i := range cache.heads[l] {
			first = append(first, int32(firstSeen(cache.heads[l][i].pos, cache.next, c.Window(l))))
		}
	}
	return first
}
