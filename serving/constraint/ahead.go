package constraint

import (
	"runtime"

	"glimpse/internal/panics"
)

// Ahead is a [Matcher] that computes masks beside what its caller does between Accept and Mask, which is a step of the
// model: a mask that takes long holds up no other answer of the batch unless it takes longer than the step. It
// is not safe for concurrent use.
type Ahead struct {
	m     *Matcher
	ready chan struct{} // closed once the mask is there
	err   error         // of a panic
}

// slots bounds the masks that are computed at the same time.
var slots = make(chan struct{}, runtime.GOMAXPROCS(0))

// NewAhead returns a matcher at the start of an answer, whose first mask is begun.
func NewAhead(g *Grammar, v *Vocabulary) *Ahead {
	a := &Ahead{m: NewMatcher(g, v)}
	a.beginWork()
	return a
}

func (a *Ahead) beginWork() {
	ready := make(chan struct{})
	a.ready = ready
	go func() {
		defer close(ready)
		defer panics.Catch(&a.err)
		slots <- struct{}{}
		defer func() { <-slots }()
		a.m.prepare() // whose error Mask returns
	}()
}

// Mask is [Matcher.Mask]. A panic of the work ahead is its error.
func (a *Ahead) Mask(logits []float32) error {
	if <-a.ready; a.err != nil {
		return a.err
	}
	return a.m.Mask(logits)
}

// Accept is [Matcher.Accept].
func (a *Ahead) Accept(id int32) error {
	if <-a.ready; a.err != nil {
		return a.err
	}
	if err := a.m.Accept(id); err != nil {
		return err
	}
	a.beginWork()
	return nil
}
