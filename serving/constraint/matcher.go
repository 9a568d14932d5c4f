package constraint

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNotAllowed is returned for a token that may not follow.
var ErrNotAllowed = errors.New("the token may not follow")

// ErrTooAmbiguous is returned where what may follow takes more work than one token may. The matcher is of no more use.
var ErrTooAmbiguous = errors.New("constraint: the grammar has too many readings of the text so far")

// Matcher is the state of one answer. It is not safe for concurrent use.
type Matcher struct {
	v       *Vocabulary
	m       *machine
	set     *stacks
	ended   bool // by an end token
	failed  bool // ErrTooAmbiguous
	current bool // allowed is of set
	allowed mask
}

// NewMatcher returns a matcher at the start of an answer.
func NewMatcher(g *Grammar, v *Vocabulary) *Matcher {
	m := newMachine()
	return &Matcher{v: v, m: m, set: m.ruleStart(g.root), allowed: mask{bits: make([]uint64, v.words)}}
}

// Mask sets the logits of every token that may not follow to −Inf. End tokens stay exactly where the
// text may end. If no token can go on, since the vocabulary lacks a piece or the nesting is as deep as it may be,
// all are −Inf. ErrTooAmbiguous: the work was given up, within a bounded time.
func (m *Matcher) Mask(logits []float32) error {
	if err := m.prepare(); err != nil {
		return err
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
	return nil
}

// prepare computes the mask.
func (m *Matcher) prepare() error {
	if !m.current && !m.failed {
		m.m.work = 0
		m.current = m.fill() && !m.m.spent()
		m.failed = !m.current
	}
	if m.failed {
		return ErrTooAmbiguous
	}
	return nil
}

// Accept takes the token that was chosen. ErrNotAllowed: it may not follow, and the matcher
// is as before. After an end token only such tokens follow.
func (m *Matcher) Accept(id int32) error {
	refused := func(why string) error { return fmt.Errorf("constraint: token %d: %w: %s", id, ErrNotAllowed, why) }
	switch {
	case slices.Contains(m.v.end, id):
		if !m.ended && !m.set.ends {
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
	m.m.work = 0
	for i, b := range m.v.tokens[id] {
		to = m.m.afterByte(to, b)
		if m.failed = m.failed || m.m.spent(); m.failed {
			return ErrTooAmbiguous
		}
		if to.id == dead {
			return refused(fmt.Sprintf("byte %d of %q is not in the grammar", i, m.v.tokens[id]))
		}
	}
	m.set, m.current = to, false
	if m.m.held > m.m.limit || m.m.rows >= maxRows/2 {
		m.m, m.set = m.m.renewed(m.set)
	}
	return nil
}

// fill computes the allowed tokens. A token may follow if it may with one of the stacks, so
// that stacks are looked at in groups with the same below: what they allow above it is
// shared (XGrammar's context-independent tokens, arXiv:2411.15100, section 3.1), and only
// tokens that go on below it are tried with it. It is false where a shared mask takes too much work.
func (m *Matcher) fill() bool {
	clear(m.allowed.bits)
	if m.ended || m.set.ends {
		m.allowed.setTokens(m.v.end)
	}
	if m.ended {
		return true
	}
	all, ok := groups(m.set)
	if !ok {
		m.v.walk(m.m, 0, m.set, unbounded, false, &m.allowed)
		return true
	}
	for _, g := range all {
		shared := m.v.shared(g)
		if shared == nil {
			return false
		}
		m.allowed.allow(shared)
		if len(g.below.frames) > 0 && len(shared.left) > 0 {
			after := m.m.after(g.below)
			for _, n := range shared.left {
				m.v.walk(m.m, n, after, unbounded, false, &m.allowed)
			}
		}
		if len(shared.deep) > 0 {
			all := g.stacksOn(m.m, g.below, func(f frame) int32 { return f.count })
			for _, n := range shared.deep {
				at := all
				for _, b := range m.v.nodeBytes(n) {
					at = m.m.afterByte(at, b)
				}
				m.v.walk(m.m, n, at, unbounded, false, &m.allowed)
			}
		}
	}
	return true
}
