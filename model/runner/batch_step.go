package runner

import (
	"cmp"
	"context"
	"fmt"
	"slices"

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
// their last bits from Step or a batch of another size: kernels round
// differently for other numbers of rows. A batch is therefore filled up to rows, so
// that what a sequence says does not depend on how many others are still going.
func (r *Runner) StepBatch(ctx context.Context, caches []*kvcache.Cache, tokens []int32, rows int) ([][]float32, error) {
	steps, err := stepsOf(caches, tokens)
	if err != nil {
		return nil, err
	}
	return r.hostStep(ctx, steps, rows)
}

// Step is StepBatch of one sequence, which is observed.
func (r *Runner) Step(ctx context.Context, cache *kvcache.Cache, token int32, capture Capture, observe Observer) ([]float32, error) {
	y, err := r.hostStep(ctx, []*batchStep{{cache: cache, token: token, opt: &GenerateOptions{Capture: capture, Observe: observe}}}, 1)
	if err != nil {
		return nil, err
	}
	return y[0], nil
}

// batchStep is what one sequence does in a step of a batch.
type batchStep struct {
	cache *kvcache.Cache
	token int32
	opt   *GenerateOptions // what is observed of it, by whom, and what it attends to
	err   error            // of its observer, or of who chooses; the other sequences go on
}

// stepsOf are steps that are not observed.
func stepsOf(caches []*kvcache.Cache, tokens []int32) ([]*batchStep, error) {
	if len(caches) == 0 || len(tokens) != len(caches) {
		return nil, fmt.Errorf("decode: %d tokens for %d sequences, want one for each of at least one", len(tokens), len(caches))
	}
	steps := make([]*batchStep, len(caches))
	for i, cache := range caches {
		steps[i] = &batchStep{cache: cache, token: tokens[i], opt: new(GenerateOptions)}
	}
	return steps, nil
}

// hostStep is stepBatch with its logits [sequences][vocab] on the host, which are the caller's.
func (r *Runner) hostStep(ctx context.Context, steps []*batchStep, rows int) (logits [][]float32, err error) {
	defer kernels.CatchDevice(&err)
	defer r.release()
	y, err := r.stepBatch(ctx, steps, rows)
	if err != nil {
		return nil, err
	}
	all, vocab := y.Rows(0, len(steps)).Float32s(), r.Model.Config.Vocab
	for i, s := range steps {
		row := all[i*vocab:][:vocab]
		if err := cmp.Or(s.err, checkLogits(r.Model, row)); err != nil {
			return nil, err
		}
		logits = append(logits, row)
	}
	return logits, nil
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
	c := &m.Config
	rows = max(rows, len(steps))
	if y, err := r.graphStep(ctx, steps, rows); y != nil || err != nil {
		return y, err
	}
	r.release()
	p := r.startBatch(steps, rows)
	for l := range c.Layers {
		p.enter(l)
		arena := p.arena
		mark := arena.Mark()
		p.startLayer(steps)
		if err := model.RunLayer(&p.layerRows, m, l); err != nil {
			return nil, err // Attend returns none
		}
		p.observeLayer(steps)
		arena.Release(mark)
	}
	for _, s := range steps {
		s.cache.Advance(1)
	}
	h := p.h
	p.releaseSequences()
	y := r.headRunner().alloc(rows, c.Vocab)
	headLogits(m, r.headRunner().on, y, h)
	return y, nil
}

// batchPass is a token of each of several sequences, and rows that fill up a batch.
type batchPass struct {
	layerRows
	own []ownMemory // one per sequence
}

// ownMemory is what a sequence of a batch uses again in every step.
type ownMemory struct {
	scratch *Runner
	views   *segmentViews
	joint   jointObservations
}

// startBatch embeds a token of each sequence.
func (r *Runner) startBatch(steps []*batchStep, rows int) *batchPass {
	m, p := r.Model, &r.batch
	most := 0
	for l := range m.Config.Layers {
		most = max(most, m.Config.KV(l).Heads)
	}
	for len(p.own) < len(steps) {
		p.own = append(p.own, ownMemory{views: &segmentViews{past: make([]kernels.KV, most), pairs: make([]kernels.Tensor, 2*most)}})
	}
	pos, ids := make([]int32, rows), make([]int32, rows)
	segments := p.segments[:0]
	for i, s := range steps {
		if len(steps) > 1 && p.own[i].scratch == nil { // they attend side by side
			p.own[i].scratch = New(m)
		}
		pos[i], ids[i] = s.cache.Next(), s.token
		segments = append(segments, segment{
			QueryRows: model.TokenRows(ids[i : i+1]), cache: s.cache, pos: pos[i : i+1], appends: true, queries: 1, onward: 1, of: 1, sparse: s.opt.Sparse,
			views: p.own[i].views, err: s.err,
		})
		if len(steps) > 1 {
			segments[i].scratch = p.own[i].scratch
		}
	}
	x := r.alloc(rows, m.Config.Hidden)
	m.Backend.Gather(x, m.Network.Embedding, ids)
	p.layerRows = layerRows{Runner: r, x: x, h: r.norm(x, m.Network.Layers[0].AttentionNorm), pos: pos, segments: segments, batch: true}
	return p
}

// memoryOf is the runner of the present layer's device that a sequence takes its memory from.
func (p *batchPass) memoryOf(s *segment) *Runner {
	if s.scratch == nil {
		return p.Runner
	}
	return s.scratch.layerRunner(p.l)
}

// startLayer prepares what is observed of the sequences in the present layer.
func (p *batchPass) startLayer(steps []*batchStep) {
	for i := range p.segments {
		s := &p.segments[i]
		s.o, s.observed = &Observation{Layer: p.l, Cache: s.cache}, Capture{}
		if !p.Model.Config.Recurrent(p.l) {
			s.observed = steps[i].opt.Capture.in(p.l)
			p.memoryOf(s).startAllRows(s)
			p.memoryOf(s).startGates(s)
		}
	}
}

// observeLayer tells the observers of all sequences what was observed in the present layer: they may evict, since no layer reads the
// cache of another. On the host they do that side by side.
func (p *batchPass) observeLayer(steps []*batchStep) {
	tell := func(i int) {
		s := &p.segments[i]
		if observe := steps[i].opt.Observe; observe != nil && s.err == nil {
			if o := p.own[i].joint.joinLayer(p.memoryOf(s), s.o); o != nil {
				s.err = observe(o)
			}
		}
		if steps[i].err = s.err; s.scratch != nil {
			s.scratch.layerRunner(p.l).arena.Release(nil)
		}
	}
	if p.on.OwnMemory() || !slices.ContainsFunc(steps, func(s *batchStep) bool { return s.opt.Observe != nil }) {
		for i := range steps {
			tell(i)
		}
	} else {
		parallel.For(len(steps), tell)
	}
}

// releaseSequences lets go of the sequences and their caches.
func (p *batchPass) releaseSequences() {
	for i := range p.segments {
		clear(p.own[i].views.past)
		clear(p.own[i].views.pairs)
		p.own[i].joint = nil
	}
	clear(p.segments)
	p.layerRows = layerRows{segments: p.segments[:0]}
}
