// Package signals ends a program's context with a signal, so that it stops cleanly.
package signals

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"glimpse/internal/progress"
)

// Exit codes of a program that a signal has stopped.
const (
	ExitInterrupted = 130
	// ExitResumable: with the work so far saved. It is EX_TEMPFAIL of sysexits.h, which tells
	// job schedulers what to start again.
	ExitResumable = 75
)

// resumable marks an error after which the same command goes on.
type resumable struct{ error }

func (r resumable) Unwrap() error { return r.error }

// Resumable marks the error of a command that a signal has ended with its work saved, so
// that ExitCode is ExitResumable.
func Resumable(err error) error { return resumable{err} }

// ExitCode is that of a command which a signal has ended with an error.
func ExitCode(err error) int {
	if errors.As(err, new(resumable)) {
		return ExitResumable
	}
	return ExitInterrupted
}

// signals ends a context with the first signal, and the program with the second.
type signals struct {
	mu        sync.Mutex
	interrupt func() bool // see OnInterrupt; nil: none
}

type signalsKey struct{}

// OnInterrupt calls f at every interrupt (Ctrl-C) until it is restored, in a goroutine of
// its own. An interrupt that f does not take ends the command's context as without f. It
// does nothing for a context that is not of Notify.
func OnInterrupt(ctx context.Context, f func() (taken bool)) (restore func()) {
	s, ok := ctx.Value(signalsKey{}).(*signals)
	if !ok {
		return func() {}
	}
	return s.setHandler(f)
}

func (s *signals) setHandler(f func() bool) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.interrupt
	s.interrupt = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.interrupt = before
	}
}

func (s *signals) taken(sig os.Signal) bool {
	if sig != os.Interrupt {
		return false
	}
	s.mu.Lock()
	f := s.interrupt
	s.mu.Unlock()
	return f != nil && f()
}

// sameSignal is the time in which a second signal is the first once more: timeout and
// launchers send it to a program and to its group.
const sameSignal = 250 * time.Millisecond

// Notify returns a context that the first SIGINT, SIGTERM or SIGHUP ends that nothing else
// takes. The next one has its usual effect, but does not leave a bar's line behind.
func Notify(parent context.Context) (ctx context.Context, stop func()) {
	s := &signals{}
	ctx, cancel := context.WithCancel(context.WithValue(parent, signalsKey{}, s))
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup the end of the terminal ends nothing
		ends = append(ends, syscall.SIGHUP)
	}
	received := make(chan os.Signal, 4)
	signal.Notify(received, ends...)
	go func() {
		var first time.Time
		for sig := range received {
			if s.taken(sig) {
				continue
			}
			if ctx.Err() == nil {
				first = time.Now()
				cancel()
				continue
			}
			if time.Since(first) < sameSignal {
				continue
			}
			progress.Stderr.Clear()
			signal.Reset(ends...)
			if p, err := os.FindProcess(os.Getpid()); err != nil || p.Signal(sig) != nil {
				os.Exit(ExitInterrupted)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(received)
		cancel()
	}
}
