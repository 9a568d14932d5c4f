package model

import (
	"context"
	"slices"

	"glimpse/kernels"
)

// replayer runs decoding steps that nobody looks into as one recorded graph: what
// changes from token to token is in device memory (kernels.Steps), so that a step
// costs one launch, for one sequence or for several. It is recorded anew only when
// the entries of a layer outgrow the cut of its attention, the positions the table of
// angles, or when the number of sequences changes.
//
// The first step of a runner, and of so many rows, is not recorded: it loads what the
// device needs.
type replayer struct {
	graph  kernels.Graph
	step   kernels.Stepper
	steps  kernels.Steps
	run    *Runner         // records: its operations go into graph
	logits *kernels.Tensor // [rows, vocab], of the last step

	rows     int // of the step; those after the sequences only fill it up
	recorded *recordedSteps
	synced   []uint64 // the versions of the caches that steps holds
}

// recordedSteps is what a recorded step serves for.
type recordedSteps struct {
	rope    *kernels.RoPETable
	pairs   kernels.DType
	buckets [][]int // per sequence and layer
}

// newReplayer returns nil where the device has no graphs.
func newReplayer(m *Model, rows int) *replayer {
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
	return &replayer{
		graph: g, step: step, steps: step.NewSteps(rows, m.Config.Layers, m.Config.KVHeads), run: view.NewRunner(),
		rows: rows, synced: make([]uint64, rows),
	}
}

// replays tells whether a pass over n tokens is a step that can be replayed: nothing
// of it is observed but where its pairs are.
func (o *PrefillOptions) replays(n int) bool {
	c := &o.Capture
	return n == 1 && !o.CacheOnly && o.Sparse == nil && !c.AllRows && !c.Squares && !c.Queries &&
		len(c.Windows)+len(c.Probes)+len(c.PeakWindows)+len(c.PeakProbes) == 0
}

// replay runs a step of each cache on the recorded graph and returns the logits [rows,
// vocab], valid until the next step; nil where it cannot be recorded, and then
// nothing has happened.
func (r *Runner) replay(ctx context.Context, caches []*Cache, tokens []int32, rows int, observe Observer) (*kernels.Tensor, error) {
	switch {
	case r.noReplay:
		return nil, nil
	case r.stepped != rows:
		r.stepped = rows
		return nil, nil
	case r.replayer == nil || r.replayer.rows != rows:
		r.replayer = newReplayer(r.Model, rows)
	}
	p := r.replayer
	if p == nil || !p.prepare(r.Model, caches) {
		r.replayer, r.noReplay = nil, true
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var first []int32
	for i, cache := range caches {
		if p.synced[i] != cache.version {
			past := make([][]kernels.KV, len(cache.heads))
			for l := range past {
				past[l] = cache.View(l)
			}
			p.step.SetSteps(p.steps, i, cache.next, past)
		}
		first = appendFirst(first, &r.Model.Config, cache)
	}
	p.step.SetStep(p.steps, tokens, first)
	p.graph.Replay()
	for i, cache := range caches {
		for l := range cache.heads {
			for j := range cache.heads[l] {
				h := &cache.heads[l][j]
				h.pos = append(h.pos, cache.next)
			}
		}
		cache.changed()
		p.synced[i] = cache.version
		for l := range cache.heads {
			if observe != nil {
				if err := observe(&Observation{Layer: l, Cache: cache}); err != nil {
					return nil, err
				}
			}
		}
		cache.next++
	}
	return p.logits, nil
}

// prepare makes room in the caches and records the step where what is recorded does
// not serve.
func (p *replayer) prepare(m *Model, caches []*Cache) bool {
	next := &recordedSteps{pairs: caches[0].dtype}
	var longest [][]int
	pos := make([]int32, len(caches))
	for i, cache := range caches {
		pos[i] = cache.next
		entries, buckets := make([]int, len(cache.heads)), make([]int, len(cache.heads))
		for l := range cache.heads {
			for j := range cache.heads[l] {
				h := &cache.heads[l][j]
				cache.makeRoom(h, 1)
				entries[l] = max(entries[l], len(h.pos)+1)
			}
			buckets[l] = kernels.EntryBucket(entries[l])
		}
		longest, next.buckets = append(longest, entries), append(next.buckets, buckets)
	}
	next.rope = m.rope(pos)
	last := p.recorded
	if last != nil && last.rope == next.rope && last.pairs == next.pairs && slices.EqualFunc(last.buckets, next.buckets, slices.Equal[[]int]) {
		return true
	}
	p.recorded = nil
	if p.graph.Record(func() { p.record(next, longest) }) {
		p.recorded = next
	}
	return p.recorded != nil
}

// record is one decoding step: the operations of prefillPass for one row, or those of
// StepBatch.
func (p *replayer) record(to *recordedSteps, longest [][]int) {
	r, b, m := p.run, p.step, p.run.Model
	c, n := &m.Config, len(longest)
	r.arena.Release(nil)
	b.StartStep(p.steps, n)
	x := r.alloc(p.rows, c.Hidden)
	b.StepGather(x, m.Network.Embedding, p.steps)
	h := r.norm(x, m.Network.Layers[0].AttentionNorm)
	for l := range m.Network.Layers {
		mark := r.arena.Mark()
		q, k, v, appended := p.stepHeads(l, n, h, to)
		out := r.alloc(p.rows, c.Heads*c.HeadDim)
		if n < p.rows {
			b.Fill(out.Rows(n, p.rows), 0)
		}
		p.stepAttention(l, longest, q, k, v, out, appended, to)
		r.finish(l, x, h, out, noLowRank, h)
		r.arena.Release(mark)
	}
	p.logits = r.alloc(p.rows, c.Vocab)
	b.Linear(p.logits, h, m.Network.Head.Weight, m.Network.Head.Bias, 1, 0)
}

// appendFirst appends, for a model with sliding windows, the first entries of all
// heads that the next position sees.
func appendFirst(first []int32, c *Config, cache *Cache) []int32 {
	if c.Windows == nil {
		return nil
	}
	for l := range cache.heads {
		for i := range cache.heads[l] {
			first = append(first, int32(firstSeen(cache.heads[l][i].pos, cache.next, c.Window(l))))
		}
	}
	return first
}
