package collective

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
)

// Deal deals out work to the other ranks, which are [Taker]s, and returns when next has no
// more and they have handed in everything. Rank 0 alone calls it, and may work on pieces itself
// meanwhile. Next gives a piece and its number, and may wait until there is one or ctx ends; more is false
// at the end. Done takes what has come of a piece. Both are called from several goroutines.
//
// A rank gets a piece when it asks for one, so who is done early gets more. Which rank has which piece
// differs from run to run: what comes of a piece must not depend on that.
func Deal(ctx context.Context, g Group, next func(ctx context.Context) (number int, piece []byte, more bool, err error), done func(number int, result []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	each := func(f func(rank int) error) {
		for rank := 1; rank < g.Size(); rank++ {
			wg.Go(func() {
				if err := f(rank); err != nil {
					cancel(err)
				}
			})
		}
	}
	each(func(rank int) error { // gives pieces
		for {
			if _, err := recv(ctx, g, rank, tagAsk); err != nil {
				return err
			}
			number, piece, more, err := next(ctx)
			if err != nil {
				return err
			}
			if !more {
				return send(ctx, g, rank, tagPiece, nil)
			}
			if err := send(ctx, g, rank, tagPiece, numbered(number, piece)); err != nil {
				return err
			}
		}
	})
	each(func(rank int) error { // takes results
		for {
			b, err := recv(ctx, g, rank, tagResult)
			if err != nil || len(b) == 0 {
				return err
			}
			number, result, err := cutNumber(b)
			if err != nil {
				return fmt.Errorf("rank %d: result: %w", rank, err)
			}
			if err := done(number, result); err != nil {
				return err
			}
		}
	})
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for rank := 1; rank < g.Size(); rank++ {
		if err := send(ctx, g, rank, tagEnd, nil); err != nil {
			return err
		}
	}
	return nil
}

// numbered is a piece of work, or what has come of it, with its number before it.
func numbered(number int, b []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(b)), uint64(number)), b...)
}

func cutNumber(b []byte) (number int, rest []byte, err error) {
	if len(b) < 8 {
		return 0, nil, fmt.Errorf("got %d bytes, want a number of 8 first", len(b))
	}
	return int(binary.LittleEndian.Uint64(b)), b[8:], nil
}

// Taker takes part in the work that rank 0 deals out.
type Taker struct {
	g       Group
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	ended   chan struct{} // rank 0 has everything

	mu    sync.Mutex
	cond  *sync.Cond
	asked bool   // a piece is on its way
	piece []byte // that has come, with its number; nil: none
	over  bool   // there are no more

	handing sync.Mutex
}

// Take begins to take part, on a rank other than 0.
func Take(ctx context.Context, g Group) *Taker {
	t := &Taker{g: g, ended: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.cond = sync.NewCond(&t.mu)
	context.AfterFunc(t.ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.cond.Broadcast()
	})
	// It always listens, so that it hears at once when the run has ended elsewhere.
	t.running.Go(func() {
		if _, err := recv(t.ctx, g, 0, tagEnd); err != nil {
			t.cancel(err)
			return
		}
		close(t.ended)
	})
	return t
}

// Context is that of the work: it ends when the run does.
func (t *Taker) Context() context.Context { return t.ctx }

// Next is the next piece and its number. More is false at the end. With wait, Next waits until there is
// one; without, it asks for one and more is false while that is on its way.
func (t *Taker) Next(wait bool) (number int, piece []byte, more bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		switch {
		case t.ctx.Err() != nil:
			return 0, nil, false, context.Cause(t.ctx)
		case t.piece != nil:
			b := t.piece
			t.piece = nil
			number, piece, err = cutNumber(b)
			return number, piece, err == nil, err
		case t.over:
			return 0, nil, false, nil
		}
		if !t.asked {
			t.asked = true
			t.running.Go(t.askPiece)
		}
		if !wait {
			return 0, nil, false, nil
		}
		t.cond.Wait()
	}
}

// askPiece fetches a piece.
func (t *Taker) askPiece() {
	var b []byte
	err := send(t.ctx, t.g, 0, tagAsk, nil)
	if err == nil {
		b, err = recv(t.ctx, t.g, 0, tagPiece)
	}
	if err != nil {
		t.cancel(err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked, t.piece, t.over = false, b, len(b) == 0
	t.cond.Broadcast()
}

// Hand hands in what has come of a piece.
func (t *Taker) Hand(number int, result []byte) error {
	t.handing.Lock()
	defer t.handing.Unlock()
	return send(t.ctx, t.g, 0, tagResult, numbered(number, result))
}

// Finish ends the part. Without err it waits until rank 0 has the results of all ranks; the error is what
// has ended the work, on this rank or elsewhere.
func (t *Taker) Finish(err error) error {
	if err == nil {
		if err = send(t.ctx, t.g, 0, tagResult, nil); err == nil {
			select {
			case <-t.ended:
			case <-t.ctx.Done():
				err = context.Cause(t.ctx)
			}
		}
	}
	t.cancel(err)
	t.running.Wait()
	if cause := context.Cause(t.ctx); err != nil && cause != nil {
		return cause // the first of them
	}
	return err
}
