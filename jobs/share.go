package jobs

import (
	"context"
	"errors"
	"iter"
	"sync"

	"glimpse/internal/patience"
)

// Share hands out the units of a run that have no result yet, in their order, as far as other processes leave
// them. Its methods may be called from several goroutines.
type Share[U any] struct {
	Work  *Work       // nil: this process is alone, and claims are nil
	Units iter.Seq[U] // all of them; two of one name are the same unit
	Name  func(U) string
	// Accept takes the result of a unit that was found. False: it is not what is wanted, and the unit is done anew.
	Accept func(u U, result []byte) (bool, error)
	// BeforeWait is called before units are waited for that others have.
	BeforeWait func() error
	// Free: units that others have are left to them, and not waited for.
	Free bool
	// Look: none are claimed; those that have no result are left.
	Look bool

	mu    sync.Mutex
	pull  func() (U, bool)
	stop  func()
	ended bool
	taken []U // by others, at the last look
	over  bool
}

// Over tells that another process has finished the run.
func (s *Share[U]) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Left are the units that others have, as far as it is known.
func (s *Share[U]) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

// Close ends the sequence of units.
func (s *Share[U]) Close() {
	if s.stop != nil {
		s.stop()
	}
}

// Next is the next unit and its claim. More is false at the end, when all units but this process's have results. With wait it
// waits for those that others have, which are free again when these die; without, more is false where there is none now.
func (s *Share[U]) Next(ctx context.Context, wait bool) (u U, c *Claim, more bool, err error) {
	if !wait {
		if !s.mu.TryLock() { // another goroutine waits
			return u, nil, false, nil
		}
	} else {
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.pull == nil {
		s.pull, s.stop = iter.Pull(s.Units)
	}
	for look := firstLook; ; look = min(2*look, lastLook) {
		for !s.ended && !s.over && ctx.Err() == nil {
			if u, more = s.pull(); !more {
				s.ended = true
				break
			}
			if c, got, err := s.take(ctx, u); got || err != nil {
				return u, c, got, err
			}
		}
		taken := s.taken
		s.taken = nil
		for i, u := range taken {
			c, got, err := s.take(ctx, u)
			if got || err != nil {
				s.taken = append(s.taken, taken[i+1:]...)
				return u, c, got, err
			}
		}
		switch {
		case ctx.Err() != nil:
			return u, nil, false, context.Cause(ctx)
		case s.over || s.Free || s.Look || len(s.taken) == 0 || !wait:
			return u, nil, false, nil
		}
		if s.BeforeWait != nil {
			if err := s.BeforeWait(); err != nil {
				return u, nil, false, err
			}
		}
		if err := patience.Sleep(ctx, look); err != nil {
			return u, nil, false, err
		}
	}
}

// take claims a unit, unless it is done.
func (s *Share[U]) take(ctx context.Context, u U) (c *Claim, got bool, err error) {
	if s.Work == nil {
		return nil, true, nil
	}
	name := s.Name(u)
	if !s.Look {
		if c, err = s.Work.claim(ctx, name); err != nil && !errors.Is(err, errTaken) {
			return nil, false, err
		}
	}
	mine := !s.Look && err == nil
	result, err := s.Work.result(ctx, name)
	done := false
	if err == nil && result != nil {
		done, err = s.Accept(u, result)
	}
	switch {
	case !mine && (err != nil || done):
		return nil, false, err
	case !mine:
		s.taken = append(s.taken, u)
		return nil, false, nil
	case err == nil && done:
		return nil, false, c.forget(ctx)
	case err == nil:
		if s.over, err = s.Work.over(ctx); err == nil && !s.over {
			s.Work.held.Store(c, true)
			return c, true, nil
		}
	}
	c.release()
	return nil, false, err
}
