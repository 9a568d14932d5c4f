package runner

import (
	"context"
	"iter"

	"glimpse/internal/panics"
)

type pauseKey struct{}

// WithPause returns a context whose work calls pause between units: of a pass over several tokens, where one chunk of
// them has gone through one layer; of a probe, where all of it has; of responses that are run to their end, a step; of an eviction,
// a layer. An error of pause ends the work. Meanwhile other runners may run.
func WithPause(ctx context.Context, pause func() error) context.Context {
	return context.WithValue(ctx, pauseKey{}, pause)
}

// Pause lets others run between two units of work, where the context has a pause.
func Pause(ctx context.Context) error {
	if pause, ok := ctx.Value(pauseKey{}).(func() error); ok {
		return pause()
	}
	return nil
}

// Units is work that runs a unit at a time, see [WithPause]. It belongs to one goroutine.
type Units struct {
	next func() (struct{}, bool)
	stop func()
	err  error
}

// NewUnits prepares work. Nothing has run yet. A panic of the work is its error.
func NewUnits(ctx context.Context, work func(ctx context.Context) error) *Units {
	u := &Units{err: context.Canceled}
	u.next, u.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer panics.Catch(&u.err)
		u.err = work(WithPause(ctx, func() error {
			if !yield(struct{}{}) {
				return context.Canceled
			}
			return nil
		}))
	})
	return u
}

// RunUnit runs a unit. It tells whether another one is to come.
func (u *Units) RunUnit() bool {
	_, more := u.next()
	return more
}

// Stop ends the work with context.Canceled, unless it has ended.
func (u *Units) Stop() { u.stop() }

// Err is what the work has ended with.
func (u *Units) Err() error { return u.err }
