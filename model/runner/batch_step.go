package runner

import (
	"context"
	"fmt"

	"glimpse/internal/parallel"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// StepBatch runs one token of each of several sequences, which extend their own
// caches, and returns their logits [sequences][vocab]. The weights are read once for
// all of them, which is most of the cost of decoding; attention runs side by side.
//
// A sequence's logits do not depend on what else is in the batch, but may differ in
// their last bits from those of Step or of a batch of another size: kernels round
// differently for other numbers of rows. A batch is therefore filled up to rows, so
// that what a sequence says does not depend on how many others are still going.
func (r *Runner) StepBatch(ctx context.Context, caches []*kvcache.Cache, tokens []int32, rows int) (logits [][]float32, err error) {
	defer kernels.CatchDevice(&err)
	defer r.release()
	steps, err := stepsOf(caches, tokens)
	if err != nil {
		return nil, err
	}
	y, err := r.stepBatch(ctx, steps, rows)
	if err != nil {
		return nil, err
	}
	return r.hostLogits(y, len(caches))
}

// batchStep is what one sequence does in a step of a batch.
type batchStep struct {
	cache *kvcache.Cache
	token int32
	opt   PrefillOptions // what is observed of it, by whom, and what it attends to
	err   error          // of its observer, or of who chooses; the other sequences go on
}

// stepsOf are steps of which nothing is observed.
func stepsOf(caches []*kvcache.Cache, tokens []int32) ([]*batchStep, error) {
	if len(caches) == 0 || len(tokens) != len(caches) {
		return nil, fmt.Errorf("decode: %d tokens for %d sequences, want one for each of at least one", len(tokens), len(caches))
	}
	steps := make([]*batchStep, len(caches))
	for i, cache := range caches {
		steps[i] = &batchStep{cache: cache, token: tokens[i]}
	}
	return steps, nil
}

// stepBatch leaves the logits [rows, vocab] in memory that the next pass takes. On an error
// nothing has happened.
func (r *Runner) stepBatch(ctx context.Context, steps []*batchStep, rows int) (*kernels.Tensor, error) {
	m := r.Model
	for _, s := range steps {
		if err := checkTokens(m, s.cache, []int32{s.token}); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, s := range steps {
		s.cache.Begin(1)
	}
	c, b, n := &m.Config, m.Backend, len(steps)
	rows = max(rows, n)
	if y, err := r.graphStep(ctx, steps, rows); y != nil || err != nil {
		return y, err
	}
	r.release()
	pos, ids, caches := make([]int32, rows), make([]int32, rows), make([]*kvcache.Cache, n)
	for i, s := range steps {
		pos[i], ids[i], caches[i] = s.cache.Next(), s.token, s.cache
	}
	x := r.alloc(rows, c.Hidden)
	b.Gather(x, m.Network.Embedding, ids)
	h := r.norm(x, m.Network.Layers[0].AttentionNorm)
	batch := &r.batch
	for len(batch.views) < n {
		batch.views = append(batch.views, newStepViews(m))
	}
	batch.layerRows = layerRows{Runner: r, x: x, h: h, at: rowPositions{pos: pos, caches: caches}, low: noLowRank, rows: []embeddedRows{{tokens: ids}}}
	batch.steps = steps
	for l := range c.Layers {
		batch.enter(l)
		arena := batch.arena
		mark := arena.Mark()
		if err := model.RunLayer(batch, m, l); err != nil {
			return nil, err // Attend returns none
		}
		arena.Release(mark)
	}
	for i, s := range steps {
		s.cache.Advance(1)
		batch.views[i].forget()
	}
	h = batch.h
	batch.layerRows, batch.steps = layerRows{}, nil // and of its caches
	y := r.end().alloc(rows, c.Vocab)
	head(m, r.end().on, y, h)
	return y, nil
}

// batchRows are a row of each of several sequences, and rows that fill up a batch.
type batchRows struct {
	layerRows
	steps []*batchStep // of the first rows
	views []*stepViews // one per sequence
}

// Attend lets every sequence attend to its own cache, be observed, and evict: no layer reads
// the cache of another. On the host the sequences do that side by side.
func (p *batchRows) Attend(q, k, v *kernels.Tensor) (*kernels.Tensor, bool, error) {
	c, b, n := &p.Model.Config, p.on, len(p.steps)
	out := p.alloc(len(p.at.pos), c.Heads*p.headDim())
	if len(p.at.pos) > n {
		b.Fill(out.Rows(n, len(p.at.pos)), 0)
	}
	attend := func(i int) { p.views[i].attend(p, i, q, k, v, out) }
	if b.OwnMemory() { // whose operations follow each other anyway
		for i := range n {
			attend(i)
		}
	} else {
		parallel.For(n, attend)
	}
	return out, true, nil
}

// Experts gives what a sequence's row gets in any batch of as many rows; rows that fill up the batch read no expert.
func (p *batchRows) Experts(e *model.Experts, h *kernels.Tensor, scale float64) *kernels.Tensor {
	y := p.alloc(h.Shape...)
	e.Forward(y, model.Pass{On: p.on, Arena: p.arena, H: h, Rows: len(p.steps), Least: p.on.SameRows(h.Dim0())}, scale)
	return y
}

// DeltaNet moves the state of every sequence on by its row. Then all are observed.
func (p *batchRows) DeltaNet(d *model.DeltaNet, scale float64) (*kernels.Tensor, bool, error) {
	y, ok, err := p.layerRows.DeltaNet(d, scale)
	for _, s := range p.steps {
		if s.err == nil && s.opt.Observe != nil {
			s.err = s.opt.Observe(&Observation{Layer: p.l, Cache: s.cache})
		}
	}
	return y, ok, err
}

// stepViews are the tensors by which one sequence of a batch attends, used again for
// every layer and token.
type stepViews struct {
	q, k, v, out kernels.Tensor
	past         []kernels.KV
	pairs        []kernels.Tensor // of past
	attention    kernels.Attend
	pass         prefillPass // of the row alone, with scratch memory of its own
}

func newStepViews(m *model.Model) *stepViews {
	most := 0
	for l := range m.Config.Layers {
		most = max(most, m.Config.KV(l).Heads)
	}
	return &stepViews{past: make([]kernels.KV, most), pairs: make([]kernels.Tensor, 2*most), pass: prefillPass{Runner: New(m)}}
}

// attend appends row i of k and v to a layer of its cache and lets row i of q attend to it.
// Of a sequence that has failed nothing is computed.
func (s *stepViews) attend(p *batchRows, i int, q, k, v, out *kernels.Tensor) {
	s.pass.Runner = s.pass.of(p.l)
	step, at, row := p.steps[i], p.at.pos[i:i+1], out.RowsInto(&s.out, i, i+1)
	if step.err != nil {
		p.on.Fill(row, 0)
		return
	}
	s.pass.cache, s.pass.opt, s.pass.pos = step.cache, step.opt, at
	s.pass.observed = step.opt.Capture.in(p.l)
	o := &Observation{Layer: p.l, Cache: step.cache}
	s.pass.startAllRows(o)
	var keys *kernels.Tensor
	if k != nil {
		keys = k.RowsInto(&s.k, i, i+1)
		step.cache.Append(p.l, keys, v.RowsInto(&s.v, i, i+1), at)
	}
	from := p.Model.Config.KVLayer(p.l)
	past := s.past[:step.cache.LayerKVHeads(from)]
	for h := range past {
		past[h] = step.cache.PairInto(from, h, &s.pairs[2*h], &s.pairs[2*h+1])
	}
	s.attention = p.attention(past, p.l, q.RowsInto(&s.q, i, i+1), at)
	if step.err = s.pass.attendRows(o, row, &s.attention, keys, 0, true); step.err == nil && step.opt.Observe != nil {
		if o = s.pass.joint.add(s.pass.Runner, o); o != nil {
			step.err = step.opt.Observe(o)
		}
	}
	s.pass.arena.Release(nil)
}

// forget lets go of the cache.
func (s *stepViews) forget() {
	clear(s.past)
	clear(s.pairs)
	s.attention, s.pass.cache, s.pass.opt, s.pass.joint = kernels.Attend{}, nil, PrefillOptions{}, nil
}

// hostLogits are the first n rows of y on the host.
func (r *Runner) hostLogits(y *kernels.Tensor, n int) ([][]float32, error) {
	all := y.Rows(0, n).Float32s()
	out := make([][]float32, n)
	for i := range out {
		out[i] = all[i*r.Model.Config.Vocab:][:r.Model.Config.Vocab]
		if err := checkLogits(r.Model, out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
