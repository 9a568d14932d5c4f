package constraint

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNotAllowed is returned for a token that may not follow.
var ErrNotAllowed = errors.New("the token may not follow")

// Matcher is the state of one answer. It is not safe for concurrent use.
type Matcher struct {
	v       *Vocabulary
	m       *machine
	set     int32
	ended   bool // by an end token
	current bool // allowed is of set
	allowed mask
}

// NewMatcher returns a matcher at the start of an answer.
func NewMatcher(g *Grammar, v *Vocabulary) *Matcher {
	m := newMachine()
	return &Matcher{v: v, m: m, set: m.begin(g.root), allowed: mask{bits: make([]uint64, v.words)}}
}

// Mask sets the logits of every token that may not follow to −Inf. End tokens stay exactly where the
// text may end. If no token can go on, since the vocabulary lacks a piece or a bound of the package is
// reached, all are −Inf.
func (m *Matcher) Mask(logits []float32) {
	if !m.current {
		m.fill()
		m.current = true
	}
	inf := float32(math.Inf(-1))
	for w, word := range m.allowed.bits {
		if word == math.MaxUint64 {
			continue
		}
		part := logits[min(w*64, len(logits)):min(w*64+64, len(logits))]
		for i := range part {
			if word>>i&1 == 0 {
				part[i] = inf
			}
		}
	}
	for i := len(m.allowed.bits) * 64; i < len(logits); i++ {
		logits[i] = inf
	}
}

// Accept takes the token that was chosen. ErrNotAllowed: it may not follow, and the matcher
// is as before. After an end token only such tokens follow.
func (m *Matcher) Accept(id int32) error {
	refused := func(why string) error { return fmt.Errorf("constraint: token %d: %w: %s", id, ErrNotAllowed, why) }
	switch {
	case slices.Contains(m.v.end, id):
		if !m.ended && !m.m.sets[m.set].ends {
			return refused("it ends an answer that is not complete")
		}
		m.ended, m.current = true, false
		return nil
	case m.ended:
		return refused("the answer has ended")
	case !m.v.allowed(id):
		return refused("it has no text")
	}
	to := m.set
	for i, b := range m.v.tokens[id] {
		if to = m.m.step(to, b, math.MaxInt); to == dead {
			return refused(fmt.Sprintf("byte %d of %q is not in the grammar", i, m.v.tokens[id]))
		}
	}
	m.set, m.current = to, false
	if len(m.m.frames) > maxFrames || m.m.rows >= maxRows/2 {
		m.m, m.set = m.m.renewed(m.set)
	}
	return nil
}

// Ended tells whether nothing but the end may follow.
func (m *Matcher) Ended() bool {
	s := &m.m.sets[m.set]
	return m.ended || s.ends && len(s.tops) == 0
}

// fill computes the allowed tokens. A token may follow if it may with one of the stacks, so
// that stacks are looked at in groups with a common tail: what they allow above the tail is
// shared (XGrammar's context-independent tokens, arXiv:2411.15100, section 3.1), and only
// tokens that go on below it are tried with the tail.
func (m *Matcher) fill() {
	clear(m.allowed.bits)
	m.m.steps = 0
	s := m.m.sets[m.set]
	if m.ended || s.ends {
		m.allowed.set(m.v.end)
	}
	if m.ended {
		return
	}
	if near(s.tops) {
		m.v.walk(m.m, 0, m.set, unbounded, false, &m.allowed)
		return
	}
	for _, g := range groups(s.tops) {
		shared := m.v.shared(g)
		m.allowed.allow(shared)
		if g.tail != nil && len(shared.left) > 0 {
			after := m.m.after(g.tail)
			for _, n := range shared.left {
				m.v.walk(m.m, n, after, unbounded, false, &m.allowed)
			}
		}
		if len(shared.deep) > 0 {
			all := m.m.intern(g.tops, false)
			for _, n := range shared.deep {
				at := all
				for _, b := range m.v.text(n) {
					at = m.m.step(at, b, maxSteps)
				}
				m.v.walk(m.m, n, at, unbounded, false, &m.allowed)
			}
		}
	}
}
