package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"glimpse/internal/panics"
	"glimpse/internal/parallel"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// Batch decodes several sequences together, each with its own cache and settings: the weights
// are read once a step for all of them, which is most of the cost of decoding. A sequence
// leaves when its response ends, and others may join before any step (continuous batching).
//
// What a sequence says does not depend on what else is in the batch, nor on how full it is:
// where a row's bits depend on how many there are, every step is filled up to the same number
// (SameRows of the backend). On the host it is what Generate says, to the bit, in batches of up
// to 16 rows; in others it may differ in the last bits of the logits.
//
// A Batch belongs to one goroutine. On the host the sequences of a step are observed, and
// choose what they attend to, at the same time, each on one goroutine. A device that
// records decoding steps records the steps of a batch, too: results have the same bits.
type Batch struct {
	model  *model.Model
	rows   int
	groups []*batchGroup
	live   []*Sequence // in the order in which they joined
}

// batchGroup is sequences that go through the model together. Which ones these are may change
// from step to step.
type batchGroup struct {
	runner    *Runner
	rows      int // that a step is filled up to
	sequences []*Sequence
	next      []drawnRow // what follows, by sequence
}

// groupRows is the number of sequences of a small model that go through it together. Several
// groups run side by side: their operations are too small for many threads. It does not
// depend on the machine, because the last bits of logits depend on it.
const groupRows = 4

// smallModel is the size, in parameters, up to which groups run side by side.
const smallModel = 20_000_000

// GroupRows is the number of rows that go through the model together where so many sequences
// are decoded at the same time.
func GroupRows(m *model.Model, sequences int) int {
	if m.Network.Parameters() <= smallModel {
		return min(sequences, groupRows)
	}
	return sequences
}

// MaxBatch is the most sequences that are decoded together.
const MaxBatch = 4096

// NewBatch returns an empty batch of at most rows sequences. On a device a step computes as many
// rows, however few there are, on the host the least that have the bits of a full batch; of a
// small model on the host, whose groups run side by side, only the groups with sequences
// (GroupRows).
func (r *Runner) NewBatch(rows int) (*Batch, error) {
	if rows < 1 || rows > MaxBatch {
		return nil, fmt.Errorf("batch: got %d rows, want 1 to %d", rows, MaxBatch)
	}
	m, size := r.Model, rows
	if !m.Backend.Traits().Device { // as of a model that only counts, too
		size = GroupRows(m, rows)
	}
	filled := m.Backend.SameRows(size)
	b := &Batch{model: m, rows: rows, groups: []*batchGroup{{runner: r, rows: filled}}}
	for from := size; from < rows; from += size {
		b.groups = append(b.groups, &batchGroup{runner: New(m), rows: filled})
	}
	return b, nil
}

// Model is what the sequences are of.
func (b *Batch) Model() *model.Model { return b.model }

// Len is the number of sequences whose responses have not ended, and Room that of those which
// may still join.
func (b *Batch) Len() int  { return len(b.live) }
func (b *Batch) Room() int { return b.rows - len(b.live) }

// Add lets a sequence join whose prompt is in cache and has ended with logits: nothing has
// run and nothing is called until the next step. The batch must have room. Probes are not
// observed of a step in a batch.
func (b *Batch) Add(cache *kvcache.Cache, logits *Logits, opt GenerateOptions) (*Sequence, error) {
	switch {
	case b.Room() < 1:
		return nil, fmt.Errorf("batch: got one more than %d sequences", b.rows)
	case len(opt.Capture.afterPrompt()) > 0:
		return nil, fmt.Errorf("batch: got probes to observe in a decoding step, want windows, all rows or queries")
	case slices.ContainsFunc(b.live, func(s *Sequence) bool { return s.step.cache == cache }):
		return nil, fmt.Errorf("batch: got the cache of a sequence that is in it")
	}
	s, err := newSequence(b.model, cache, logits, opt)
	if err != nil {
		return nil, err
	}
	b.live = append(b.live, s)
	return s, nil
}

// Remove ends a response where it is and takes its sequence out of the batch, if it is in it.
func (b *Batch) Remove(s *Sequence) {
	s.done = true
	if i := slices.Index(b.live, s); i >= 0 {
		b.live = slices.Delete(slices.Clone(b.live), i, i+1) // a step may be going over them
		s.leave()
	}
}

// Step takes the next token of every sequence: it runs the last one of each, together, of
// those that have one, and then draws. It returns the sequences whose responses have ended,
// with an error of their own or without, and which have left the batch.
//
// A panic in a sequence's observer, its processors or its callbacks is the error of that sequence.
//
// The error is that of all: of ctx, before which nothing has run and after which the
// batch may go on; or of the device, or a panic of the pass, with which every sequence ends.
func (b *Batch) Step(ctx context.Context) (ended []*Sequence, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err = b.stepGroups(context.WithoutCancel(ctx)); err != nil {
		for _, s := range b.live {
			if !s.done {
				s.endWithError(err)
			}
		}
	}
	b.live = slices.DeleteFunc(b.live, func(s *Sequence) bool {
		if s.done {
			ended = append(ended, s)
		}
		return s.done
	})
	for _, s := range ended {
		s.leave()
	}
	return ended, err
}

// Run takes steps until every response has ended. An error of all, and one of a pause between steps ([WithPause]), ends those that
// go on.
func (b *Batch) Run(ctx context.Context) error {
	for b.Len() > 0 {
		_, err := b.Step(ctx)
		if err == nil && b.Len() > 0 {
			err = Pause(ctx)
		}
		if err != nil {
			for _, s := range b.live {
				s.endWithError(err)
				b.Remove(s)
			}
			return err
		}
	}
	return nil
}

func (b *Batch) stepGroups(ctx context.Context) (err error) {
	defer panics.Catch(&err)
	defer kernels.CatchDevice(&err)
	var going []*Sequence
	for _, s := range b.live {
		if s.first != nil {
			s.endWithError(alone(s.takeToken)(s.first))
			s.first = nil
		}
		if !s.done {
			s.endWithError(checkTokens(b.model, s.step.cache, s.last()))
		}
		if !s.done && s.skips() {
			s.goOn(drawnRow{})
		} else if !s.done {
			s.step.token = s.last()[0]
			going = append(going, s)
		}
	}
	groups := b.assignGroups(going)
	defer func() {
		for _, g := range groups { // logits on a device are read until then
			g.runner.release()
			g.sequences, g.next = nil, nil
		}
	}()
	errs := make([]error, len(groups))
	run := func(i int) { errs[i] = groups[i].runTokens(ctx) }
	if len(groups) == 1 { // with all threads
		run(0)
	} else {
		parallel.For(len(groups), run)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, g := range groups {
		for i, s := range g.sequences {
			s.goOn(g.next[i])
		}
	}
	return nil
}

// assignGroups gives sequences to groups, to as many of these as there are sequences for.
func (b *Batch) assignGroups(going []*Sequence) []*batchGroup {
	groups := b.groups[:min(len(b.groups), len(going))]
	for i, g := range groups {
		g.sequences = going[i*len(going)/len(groups) : (i+1)*len(going)/len(groups)]
		slices.SortStableFunc(g.sequences, func(a, b *Sequence) int { return cmp.Compare(a.step.kind(), b.step.kind()) }) // plain ones attend together
	}
	return groups
}

// runTokens runs the last token of every sequence of the group and leaves what follows.
func (g *batchGroup) runTokens(ctx context.Context) error {
	r := g.runner
	steps := make([]*batchStep, len(g.sequences))
	samplers := make([]*sampler, len(g.sequences)) // of those that draw
	for i, s := range g.sequences {
		steps[i] = &s.step
		if s.Forced == nil {
			samplers[i] = s.sampler
		}
	}
	y, err := r.stepBatch(ctx, steps, g.rows)
	if err != nil {
		return err
	}
	g.next = drawRows(r.Model, y, samplers)
	return nil
}
