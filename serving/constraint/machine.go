package constraint

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// stacks is a set of stacks, in the form that all equal sets of a machine have: each state and count is on top
// once, with the set of all that is below it. So an ambiguous text, which has more stacks
// than could be listed, has few frames: a graph-structured stack (Tomita 1987), shared between positions, too.
type stacks struct {
	id, depth int32
	frames    []frame     // in the order of their states and counts
	ends      bool        // the empty stack is one: the text may end here
	next      *[256]int32 // what follows a byte plus one; 0: not known yet
	after     *stacks     // see machine.after; nil: not known yet
}

// A frame is a state, how often its counter has run, and what to return to.
type frame struct {
	state *state
	count int32
	below *stacks
}

// dead is the id of the set without stacks, from which no text goes on, bottom of the one with the empty stack alone.
const (
	dead = iota
	bottom
)

// Bounds of a machine's memory and work.
const (
	maxDepth  = 1024    // of a stack; deeper ones are dropped
	maxWork   = 1 << 22 // units of one mask or token, about 10 ns each; what would take more is given up
	maxRows   = 1 << 12 // sets that remember what follows them
	maxFrames = 1 << 15 // after which a machine is renewed
	frameWork = 8       // units of a frame that is looked at; a byte that was read before is one
)

// A machine reads bytes with sets of stacks (a pushdown automaton that is made deterministic
// as far as it is used). It is not safe for concurrent use.
type machine struct {
	sets   []*stacks
	index  map[string]int32 // sets by their frames
	unions map[[2]int32]*stacks
	rows   int
	held   int // frames of all sets, and unions
	limit  int // of held, after which the machine is renewed
	work   int // units since it was last set to 0

	// Of a closure.
	todo    []visit
	seen    map[visit]struct{}
	entries map[*rule]*entry
	tops    []visit
	left    []*stacks // below rules that have ended
	key     []byte
}

// visit is a frame to look at. One of a rule that has read no byte since it was called has an entry in the place
// of the frames below it, and does not leave the rule: callers pass over rules that match the empty text themselves.
type visit struct {
	state *state
	count int32
	below *stacks
	entry *entry
}

// An entry is a rule that is called before a byte, from all of its callers.
type entry struct {
	callers []visit // at what they return to, nil where that is their own end
	below   *stacks // nil: not known yet
	open    bool
}

func newMachine() *machine {
	m := &machine{limit: maxFrames, index: make(map[string]int32), unions: make(map[[2]int32]*stacks), seen: make(map[visit]struct{}), entries: make(map[*rule]*entry)}
	m.intern(nil, false)
	m.intern(nil, true)
	return m
}

// spent tells that the work has come to its bound: what was found since is not all, and the machine is of no more use.
func (m *machine) spent() bool { return m.work > maxWork }

// intern returns the one set of these frames, which are in order. It keeps a copy.
func (m *machine) intern(frames []frame, ends bool) *stacks {
	m.key = m.key[:0]
	if ends {
		m.key = append(m.key, 1)
	}
	depth := int32(0)
	for _, f := range frames {
		m.key = binary.AppendUvarint(m.key, f.state.id)
		m.key = binary.AppendUvarint(m.key, uint64(f.count))
		m.key = binary.NativeEndian.AppendUint32(m.key, uint32(f.below.id))
		depth = max(depth, f.below.depth+1)
	}
	id, known := m.index[string(m.key)]
	if !known {
		id = int32(len(m.sets))
		m.sets = append(m.sets, &stacks{id: id, depth: depth, frames: slices.Clone(frames), ends: ends})
		m.index[string(m.key)] = id
		m.held += len(frames)
	}
	return m.sets[id]
}

// join returns the set of frames in any order; some may have equal tops.
func (m *machine) join(frames []frame, ends bool) *stacks {
	slices.SortStableFunc(frames, func(a, b frame) int {
		return cmp.Or(cmp.Compare(a.state.id, b.state.id), cmp.Compare(a.count, b.count))
	})
	out := frames[:0]
	for _, f := range frames {
		switch last := len(out) - 1; {
		case f.below.id == dead || f.below.depth >= maxDepth:
		case last >= 0 && out[last].state == f.state && out[last].count == f.count:
			out[last].below = m.union(out[last].below, f.below)
		default:
			out = append(out, f)
		}
	}
	return m.intern(out, ends)
}

// union returns the stacks of both sets.
func (m *machine) union(a, b *stacks) *stacks {
	switch {
	case a == b || b.id == dead:
		return a
	case a.id == dead:
		return b
	}
	key := [2]int32{min(a.id, b.id), max(a.id, b.id)}
	if u := m.unions[key]; u != nil {
		return u
	}
	if m.spent() {
		return a
	}
	m.held++
	m.work += frameWork * (len(a.frames) + len(b.frames))
	u := m.join(slices.Concat(a.frames, b.frames), a.ends || b.ends)
	m.unions[key] = u
	return u
}

// on returns the set of one frame on a set.
func (m *machine) on(below *stacks, s *state, count int32) *stacks {
	return m.join([]frame{{s, count, below}}, false)
}

// enterRule enters a rule, which returns to back with the count and what is below of v.
func (m *machine) enterRule(r *rule, back *state, v visit) {
	e := m.entries[r]
	if e == nil {
		e = &entry{}
		m.entries[r] = e
		m.todo = append(m.todo, visit{state: r.start, entry: e})
	}
	v.state = back
	e.callers = append(e.callers, v)
}

// closure returns the set of frames that the ones in todo come to without a byte.
func (m *machine) closure(ends bool) *stacks {
	clear(m.seen)
	clear(m.entries)
	for _, v := range m.todo {
		if v.entry != nil { // of ruleStart
			m.entries[v.state.rule] = v.entry
		}
	}
	m.tops, m.left = m.tops[:0], m.left[:0]
	for len(m.todo) > 0 && !m.spent() {
		v := m.todo[len(m.todo)-1]
		m.todo = m.todo[:len(m.todo)-1]
		if _, known := m.seen[v]; known {
			continue
		}
		m.seen[v] = struct{}{}
		m.work += frameWork
		s := v.state
		if s.accept && v.entry == nil {
			m.left = append(m.left, v.below)
		}
		for _, to := range s.free {
			m.todo = append(m.todo, visit{to, 0, v.below, v.entry})
		}
		for _, c := range s.calls {
			back, from := c.back, v
			if from.count = 0; back.accept {
				back = nil
			}
			m.enterRule(c.rule, back, from)
		}
		if c := s.count; c != nil {
			if c.max == unbounded || v.count < c.max {
				m.enterRule(c.body, s, v)
			}
			if v.count >= c.min {
				m.todo = append(m.todo, visit{c.exit, 0, v.below, v.entry})
			}
		}
		if len(s.edges) > 0 {
			m.tops = append(m.tops, v)
		}
	}
	m.todo = m.todo[:0]
	frames := make([]frame, len(m.tops))
	for i, v := range m.tops {
		frames[i] = frame{v.state, v.count, m.under(v)}
	}
	all := m.join(frames, ends)
	for _, below := range slices.Clone(m.left) {
		all = m.union(all, m.after(below))
	}
	return all
}

// under returns what is below a frame, of one with an entry what its callers return to.
func (m *machine) under(v visit) *stacks {
	e := v.entry
	if e == nil {
		return v.below
	}
	if e.below == nil && !e.open { // which is not come to again: no rule begins with itself
		e.open = true
		all := m.sets[dead]
		var frames []frame
		for _, c := range e.callers {
			if c.state == nil {
				all = m.union(all, m.under(c))
			} else {
				frames = append(frames, frame{c.state, c.count, m.under(c)})
			}
		}
		e.below = m.union(all, m.join(frames, false))
	}
	if e.below == nil {
		return m.sets[dead]
	}
	return e.below
}

// ruleStart returns the set before the first byte of a rule's texts.
func (m *machine) ruleStart(r *rule) *stacks {
	m.todo = append(m.todo, visit{state: r.start, entry: &entry{below: m.sets[bottom]}})
	return m.closure(r.nullable)
}

// after returns the set after the end of a rule that was called from the frames of below. It does not depend on
// what the rule has read, so that where many rules end at once each is gone on from once.
func (m *machine) after(below *stacks) *stacks {
	if below.after == nil {
		for _, f := range below.frames {
			if c := f.state.count; c != nil {
				f.count++
				if c.max == unbounded {
					f.count = min(f.count, c.min)
				}
			}
			m.todo = append(m.todo, visit{state: f.state, count: f.count, below: f.below})
		}
		below.after = m.closure(below.ends)
	}
	return below.after
}

// afterByte returns the set after a byte, the dead one if no stack reads it or the work is spent.
func (m *machine) afterByte(s *stacks, b byte) *stacks {
	m.work++
	if s.next != nil && s.next[b] != 0 {
		return m.sets[s.next[b]-1]
	}
	if m.spent() {
		return m.sets[dead]
	}
	for _, f := range s.frames {
		for _, e := range f.state.edges {
			if e.lo <= b && b <= e.hi {
				m.todo = append(m.todo, visit{state: e.to, below: f.below})
			}
		}
	}
	m.work += len(s.frames)
	to := m.sets[dead]
	if len(m.todo) > 0 {
		to = m.closure(false)
	}
	if s.next == nil && m.rows < maxRows {
		s.next = new([256]int32)
		m.rows++
	}
	if s.next != nil {
		s.next[b] = to.id + 1
	}
	return to
}

// renewed returns a machine that has one set of m alone, and the set in it.
func (m *machine) renewed(s *stacks) (*machine, *stacks) {
	fresh := newMachine()
	s = fresh.adopt(s, make(map[*stacks]*stacks))
	fresh.limit = max(maxFrames, 2*fresh.held)
	return fresh, s
}

// adopt copies a set of another machine.
func (m *machine) adopt(s *stacks, copies map[*stacks]*stacks) *stacks {
	if c := copies[s]; c != nil {
		return c
	}
	frames := make([]frame, len(s.frames))
	for i, f := range s.frames {
		frames[i] = frame{f.state, f.count, m.adopt(f.below, copies)}
	}
	c := m.intern(frames, s.ends)
	if copies[s] = c; s.after != nil {
		c.after = m.adopt(s.after, copies)
	}
	return c
}
