package constraint

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A frame is a stack: a state, how often its counter has run, and what to return to, nil
// being the end of the text. Frames of one machine are equal where their pointers are.
type frame struct {
	frameKey
	id, depth  int32
	fresh, old uint32 // the last closure that has seen it
	listed     uint32 // the last closure that lists it
}

type frameKey struct {
	state *state
	count int32
	tail  *frame
}

// A set is the stacks that read the same text, in the order of their ids. Each is about to
// read a byte.
type set struct {
	tops []*frame
	ends bool        // the text may end here
	next *[256]int32 // what follows a byte plus one; 0: not known yet
}

// dead is the number of the set without stacks, from which no text goes on.
const dead = 0

// Bounds of what a machine holds and does.
const (
	maxStacks = 2048    // of a set; the others are dropped
	maxDepth  = 1024    // of a stack; deeper ones are dropped
	maxSteps  = 1 << 18 // frames that one mask looks at
	maxRows   = 1 << 12 // sets that remember what follows them
	maxFrames = 1 << 15 // after which a machine is renewed
)

// A machine reads bytes with sets of stacks (a pushdown automaton that is made deterministic
// as far as it is used). It is not safe for concurrent use.
type machine struct {
	frames map[frameKey]*frame
	sets   []set
	index  map[string]int32 // sets by the ids of their stacks
	rows   int
	steps  int // frames looked at since it was last set to 0

	closures uint32
	todo     []visit
	tops     []*frame
	key      []byte
}

// visit is a frame to look at. A fresh one has read no byte since its rule was entered, and
// does not leave the rule: callers pass over rules that match the empty text themselves.
type visit struct {
	*frame
	fresh bool
}

func newMachine() *machine {
	m := &machine{frames: make(map[frameKey]*frame), index: make(map[string]int32)}
	m.intern(nil, false)
	return m
}

// frame returns the one frame of these parts, nil if the stack would be too deep.
func (m *machine) frame(s *state, count int32, tail *frame) *frame {
	key := frameKey{s, count, tail}
	f := m.frames[key]
	if f == nil {
		f = &frame{frameKey: key, id: int32(len(m.frames)), depth: 1}
		if tail != nil {
			f.depth = tail.depth + 1
		}
		m.frames[key] = f
	}
	if f.depth > maxDepth {
		return nil
	}
	return f
}

func (m *machine) push(f *frame, fresh bool) {
	if f != nil {
		m.todo = append(m.todo, visit{f, fresh})
	}
}

// leave goes on after the end of a rule that was called from tail.
func (m *machine) leave(tail *frame) {
	if c := tail.state.count; c != nil {
		n := tail.count + 1
		if c.max == unbounded {
			n = min(n, c.min)
		}
		tail = m.frame(tail.state, n, tail.tail)
	}
	m.push(tail, false)
}

// closure returns the set of what the frames in todo come to without a byte.
func (m *machine) closure(ends bool) int32 {
	m.closures++
	gen := m.closures
	m.tops = m.tops[:0]
	for len(m.todo) > 0 && len(m.tops) < maxStacks {
		f := m.todo[len(m.todo)-1]
		m.todo = m.todo[:len(m.todo)-1]
		if f.old == gen || f.fresh && f.frame.fresh == gen {
			continue
		}
		if f.fresh {
			f.frame.fresh = gen
		} else {
			f.old = gen
		}
		m.steps++
		s := f.state
		if s.accept && !f.fresh {
			if f.tail == nil {
				ends = true
			} else {
				m.leave(f.tail)
			}
		}
		for _, to := range s.free {
			m.push(m.frame(to, 0, f.tail), f.fresh)
		}
		for _, c := range s.calls {
			back := f.tail // of a call at the end of its rule
			if !c.back.accept {
				if back = m.frame(c.back, 0, f.tail); back == nil {
					continue
				}
			}
			m.push(m.frame(c.rule.start, 0, back), true)
		}
		if c := s.count; c != nil {
			if c.max == unbounded || f.count < c.max {
				m.push(m.frame(c.body.start, 0, f.frame), true)
			}
			if f.count >= c.min {
				m.push(m.frame(c.exit, 0, f.tail), f.fresh)
			}
		}
		if len(s.edges) > 0 && f.listed != gen {
			f.listed = gen
			m.tops = append(m.tops, f.frame)
		}
	}
	m.todo = m.todo[:0]
	slices.SortFunc(m.tops, func(a, b *frame) int { return cmp.Compare(a.id, b.id) })
	return m.intern(m.tops, ends)
}

// intern returns the number of a set, of which it keeps a copy.
func (m *machine) intern(tops []*frame, ends bool) int32 {
	m.key = m.key[:0]
	for _, f := range tops {
		m.key = binary.NativeEndian.AppendUint32(m.key, uint32(f.id))
	}
	if ends {
		m.key = append(m.key, 1)
	}
	id, known := m.index[string(m.key)]
	if !known {
		id = int32(len(m.sets))
		m.sets = append(m.sets, set{tops: slices.Clone(tops), ends: ends})
		m.index[string(m.key)] = id
	}
	return id
}

// begin returns the set before the first byte of a rule's texts.
func (m *machine) begin(r *rule) int32 {
	m.push(m.frame(r.start, 0, nil), true)
	return m.closure(r.nullable)
}

// after returns the set after the end of a rule that was called from tail.
func (m *machine) after(tail *frame) int32 {
	m.leave(tail)
	return m.closure(false)
}

// step returns the set after a byte, dead if no stack reads it or limit is passed.
func (m *machine) step(from int32, b byte, limit int) int32 {
	s := &m.sets[from]
	if s.next != nil && s.next[b] != 0 {
		return s.next[b] - 1
	}
	if m.steps > limit {
		return dead
	}
	for _, f := range s.tops {
		for _, e := range f.state.edges {
			if e.lo <= b && b <= e.hi {
				m.push(m.frame(e.to, 0, f.tail), false)
			}
		}
	}
	m.steps += len(s.tops)
	to := int32(dead)
	if len(m.todo) > 0 {
		to = m.closure(false)
	}
	s = &m.sets[from] // closure may have moved it
	if s.next == nil && m.rows < maxRows {
		s.next = new([256]int32)
		m.rows++
	}
	if s.next != nil {
		s.next[b] = to + 1
	}
	return to
}

// renewed returns a machine that has one set of m alone, and the set's number in it.
func (m *machine) renewed(id int32) (*machine, int32) {
	fresh := newMachine()
	return fresh, fresh.adopt(m.sets[id].tops, m.sets[id].ends, func(f *frame) (*frame, int32) { return f.tail, f.count })
}

// adopt makes a set of stacks of another machine. shape returns a frame's tail and count
// as they are to be here.
func (m *machine) adopt(tops []*frame, ends bool, shape func(*frame) (*frame, int32)) int32 {
	copies := make(map[*frame]*frame)
	var chain []*frame
	adopted := make([]*frame, 0, len(tops))
	for _, f := range tops {
		chain = chain[:0]
		for f != nil && copies[f] == nil {
			chain = append(chain, f)
			f, _ = shape(f)
		}
		var tail *frame
		if f != nil {
			tail = copies[f]
		}
		for _, g := range slices.Backward(chain) {
			_, count := shape(g)
			tail = m.frame(g.state, count, tail)
			copies[g] = tail
		}
		adopted = append(adopted, tail)
	}
	slices.SortFunc(adopted, func(a, b *frame) int { return cmp.Compare(a.id, b.id) })
	return m.intern(slices.Compact(adopted), ends)
}
