package model

import (
	"context"
	"fmt"
	"slices"

	"glimpse/internal/parallel"
	"glimpse/kernels"
)

// StepBatch runs one token of each of several sequences, which extend their own
// caches, and returns their logits [sequences][vocab]. The weights are read once for
// all of them, which is most of the cost of decoding; attention runs side by side.
//
// A sequence's logits do not depend on what else is in the batch, but may differ in
// their last bits from those of Step or of a batch of another size: kernels round
// differently for other numbers of rows. A batch is therefore filled up to rows, so
// that what a sequence says does not depend on how many others are still going.
func (r *Runner) StepBatch(ctx context.Context, caches []*Cache, tokens []int32, rows int) (logits [][]float32, err error) {
	defer kernels.CatchDevice(&err)
	defer r.arena.Release(nil)
	y, err := r.stepBatch(ctx, caches, tokens, rows)
	if err != nil {
		return nil, err
	}
	return r.hostLogits(y, len(caches))
}

// NextBatch is StepBatch that draws every sequence's next token, on a device where the
// logits lie.
func (r *Runner) NextBatch(ctx context.Context, caches []*Cache, tokens []int32, rows int, samplers []*Sampler) (next []int32, err error) {
	if len(samplers) != len(caches) {
		return nil, fmt.Errorf("decode: %d samplers for %d sequences", len(samplers), len(caches))
	}
	defer kernels.CatchDevice(&err)
	defer r.arena.Release(nil)
	y, err := r.stepBatch(ctx, caches, tokens, rows)
	if err != nil {
		return nil, err
	}
	if r.Model.samplesOnDevice() && !slices.ContainsFunc(samplers, func(s *Sampler) bool { return s.s.onHost() }) {
		draws := make([]kernels.Draw, len(samplers))
		for i, s := range samplers {
			draws[i] = s.s.draw()
		}
		return r.Model.draw(y.Rows(0, len(draws)), draws)
	}
	logits, err := r.hostLogits(y, len(caches))
	if err != nil {
		return nil, err
	}
	for i, s := range samplers {
		id, err := s.s.next(logits[i])
		if err != nil {
			return nil, err
		}
		next = append(next, id)
	}
	return next, nil
}

// stepBatch leaves the logits [rows, vocab] in memory that the next pass takes.
func (r *Runner) stepBatch(ctx context.Context, caches []*Cache, tokens []int32, rows int) (*kernels.Tensor, error) {
	m := r.Model
	if len(caches) == 0 || len(tokens) != len(caches) {
		return nil, fmt.Errorf("decode: %d tokens for %d sequences, want one for each of at least one", len(tokens), len(caches))
	}
	for i, cache := range caches {
		if err := m.checkTokens(cache, tokens[i:i+1]); err != nil {
			return nil, err
		}
		cache.start(1)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, b, n := &m.Config, m.Backend, len(caches)
	rows = max(rows, n)
	if y, err := r.graphStep(ctx, caches, tokens, rows, PrefillOptions{}); err != nil {
		return nil, err
	} else if y != nil {
		return y, nil
	}
	r.arena.Release(nil)
	pos, ids := make([]int32, rows), make([]int32, rows)
	copy(ids, tokens)
	for i, cache := range caches {
		pos[i] = cache.next
	}
	x := r.alloc(rows, c.Hidden)
	b.Gather(x, m.Network.Embedding, ids)
	h := r.norm(x, m.Network.Layers[0].AttentionNorm)
	batch := &r.batch
	for len(batch.views) < n {
		batch.views = append(batch.views, &stepViews{past: make([]kernels.KV, c.KVHeads), pairs: make([]kernels.Tensor, 2*c.KVHeads)})
	}
	batch.layerRows = layerRows{Runner: r, x: x, h: h, next: h, at: places{pos: pos, caches: caches}, low: noLowRank}
	for batch.l = range c.Layers {
		mark := r.arena.Mark()
		if err := RunLayer(batch, m, batch.l); err != nil {
			return nil, err
		}
		r.arena.Release(mark)
	}
	for i, cache := range caches {
		cache.next++
		batch.views[i].forget()
	}
	batch.layerRows = layerRows{} // and of its caches
	y := r.alloc(rows, c.Vocab)
	m.head(b, y, h)
	return y, nil
}

// batchRows are a row of each of several sequences, and rows that fill up a batch.
type batchRows struct {
	layerRows
	views []*stepViews // one per sequence
}

func (p *batchRows) Attend(q, k, v *kernels.Tensor) (*kernels.Tensor, bool, error) {
	c, pos, caches := &p.Model.Config, p.at.pos, p.at.caches
	out := p.alloc(len(pos), c.Heads*c.HeadDim)
	if n := len(caches); len(pos) > n {
		p.Model.Backend.Fill(out.Rows(n, len(pos)), 0)
	}
	parallel.For(len(caches), func(i int) { p.views[i].attend(p.Runner, caches[i], p.l, i, pos, q, k, v, out) })
	return out, true, nil
}

// stepViews are the tensors by which one sequence of a batch attends, used again for
// every layer and token.
type stepViews struct {
	q, k, v, out kernels.Tensor
	past         []kernels.KV
	pairs        []kernels.Tensor // of past
	attention    kernels.Attend
}

// attend appends row i of k and v to a layer of the cache and lets row i of q attend to
// it.
func (s *stepViews) attend(r *Runner, cache *Cache, layer, i int, pos []int32, q, k, v, out *kernels.Tensor) {
	at := pos[i : i+1]
	cache.append(layer, k.RowsInto(&s.k, i, i+1), v.RowsInto(&s.v, i, i+1), at)
	for h := range s.past {
		s.past[h] = cache.heads[layer][h].viewInto(&s.pairs[2*h], &s.pairs[2*h+1])
	}
	s.attention = r.attention(s.past, layer, q.RowsInto(&s.q, i, i+1), at)
	r.Model.Backend.Attention(out.RowsInto(&s.out, i, i+1), nil, &s.attention)
}

// forget lets go of the cache.
func (s *stepViews) forget() {
	clear(s.past)
	clear(s.pairs)
	s.attention = kernels.Attend{}
}

// hostLogits are the first n rows of y on the host.
func (r *Runner) hostLogits(y *kernels.Tensor, n int) ([][]float32, error) {
	all := y.Rows(0, n).Float32s()
	out := make([][]float32, n)
	for i := range out {
		out[i] = all[i*r.Model.Config.Vocab:][:r.Model.Config.Vocab]
		if err := r.Model.checkLogits(out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Sampler draws the tokens of one sequence.
type Sampler struct{ s *sampler }

// NewSampler validates the settings. Processors look at the prompt, which is that of the
// sequence.
func NewSampler(s Sampling, prompt []int32) (*Sampler, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &Sampler{newSampler(s, prompt)}, nil
}

// Next draws a token. Equal logits: the lower id comes first.
func (s *Sampler) Next(logits *Logits) (int32, error) { return logits.next(s.s) }
