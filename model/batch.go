package model

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"glimpse/kernels"
)

// Batch decodes several sequences together, each with its own cache and settings: the weights
// are read once a step for all of them, which is most of the cost of decoding. A sequence
// leaves when its response ends, and others may join before any step (continuous batching).
//
// What a sequence says does not depend on what else is in the batch, nor on how full it is:
// every step is filled up to the same number of rows. It may differ from Generate in the
// last bits of the logits, since kernels round differently for other numbers of rows.
//
// A Batch belongs to one goroutine. On the host the sequences of a step are observed, and
// choose what they attend to, at the same time, each on one goroutine. On a device that
// records decoding steps, those of a batch are recorded unless scores of a sequence are
// observed or it chooses what it attends to: results have the same bits.
type Batch struct {
	runner *Runner
	rows   int
	live   []*Sequence // in the order in which they joined
}

// NewBatch returns an empty batch of at most rows sequences, which is also the number of rows
// that every step computes.
func (r *Runner) NewBatch(rows int) (*Batch, error) {
	if rows < 1 {
		return nil, fmt.Errorf("batch: got %d rows, want at least 1", rows)
	}
	return &Batch{runner: r, rows: rows}, nil
}

// Len is the number of sequences whose responses have not ended, and Room that of those which
// may still join.
func (b *Batch) Len() int  { return len(b.live) }
func (b *Batch) Room() int { return b.rows - len(b.live) }

// Sequence is one response of a batch.
type Sequence struct {
	response
	step  batchStep
	first *Logits // of the prompt's last token, until the first step
	err   error
}

// Tokens are those of the response so far, without the end token; the last of them is not
// in the cache.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// Ended tells whether there was an end token.
func (s *Sequence) Ended() bool { return s.ended }

// Err is what ended the sequence early, after which its cache is unusable; nil where it goes on
// or has ended as it should.
func (s *Sequence) Err() error { return s.err }

// Add lets a sequence join whose prompt is in cache and has ended with logits: nothing has
// run and nothing is called until the next step. The batch must have room. Probes are not
// observed of a step in a batch.
func (b *Batch) Add(cache *Cache, logits *Logits, opt GenerateOptions) (*Sequence, error) {
	switch {
	case b.Room() < 1:
		return nil, fmt.Errorf("batch: got one more than %d sequences", b.rows)
	case len(opt.Capture.Probes)+len(opt.Capture.PeakProbes) > 0:
		return nil, fmt.Errorf("batch: got probes to observe in a decoding step, want windows, all rows or queries")
	case slices.ContainsFunc(b.live, func(s *Sequence) bool { return s.step.cache == cache }):
		return nil, fmt.Errorf("batch: got the cache of a sequence that is in it")
	}
	r, err := b.runner.Model.newResponse(cache, opt)
	if err != nil {
		return nil, err
	}
	pass := PrefillOptions{Capture: opt.Capture, Observe: opt.Observe, Sparse: opt.Sparse, SparseOnDevice: opt.SparseOnDevice}
	s := &Sequence{response: *r, first: logits, step: batchStep{cache: cache, opt: pass}}
	b.live = append(b.live, s)
	return s, nil
}

// Remove ends a response where it is and takes its sequence out of the batch, if it is in it.
func (b *Batch) Remove(s *Sequence) {
	s.done = true
	b.live = slices.DeleteFunc(slices.Clone(b.live), func(other *Sequence) bool { return other == s }) // a step may be going over them
}

// Step takes the next token of every sequence: it runs the last one of each, together, of
// those that have one, and then draws. It returns the sequences whose responses have ended,
// with an error of their own or without, and which have left the batch.
//
// The error is that of all: of ctx, before which nothing has run and after which the
// batch may go on; or of the device, with which every sequence ends.
func (b *Batch) Step(ctx context.Context) (ended []*Sequence, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err = b.step(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		for _, s := range b.live {
			if !s.done {
				s.fail(err)
			}
		}
	}
	b.live = slices.DeleteFunc(b.live, func(s *Sequence) bool {
		if s.done {
			ended = append(ended, s)
		}
		return s.done
	})
	return ended, err
}

func (b *Batch) step(ctx context.Context) (err error) {
	defer kernels.CatchDevice(&err)
	r := b.runner
	defer r.arena.Release(nil)
	var going []*Sequence
	var steps []*batchStep
	for _, s := range b.live {
		if s.first != nil {
			s.fail(s.take(s.first))
			s.first = nil
		}
		if !s.done {
			s.fail(r.Model.checkTokens(s.step.cache, s.last()))
		}
		if !s.done {
			s.step.token = s.last()[0]
			going, steps = append(going, s), append(steps, &s.step)
		}
	}
	if len(going) == 0 {
		return nil
	}
	y, err := r.stepBatch(ctx, steps, b.rows)
	if err != nil {
		return err
	}
	for _, s := range going {
		s.fail(s.step.err)
	}
	samplers := make([]*sampler, len(going)) // of those that draw
	for i, s := range going {
		if s.Forced == nil && !s.done {
			samplers[i] = s.sampler
		}
	}
	for i, row := range r.Model.drawRows(y, samplers) {
		s := going[i]
		s.fail(row.err)
		if !s.done {
			s.fail(s.stepped())
		}
		if !s.done {
			s.fail(s.take(row.Logits))
		}
	}
	return nil
}

// fail ends the sequence with an error, unless that is nil. The first one counts.
func (s *Sequence) fail(err error) {
	if err != nil && s.err == nil {
		s.err, s.done = err, true
	}
}
