package constraint

import (
	"encoding/binary"
	"slices"
)

// A group is stacks that have what is below their rule in common.
type group struct {
	below *stacks
	tops  [][]frame // what is above: the frames of each from its top down
}

// maxGrouped is how many stacks may be told apart above what is below their rules.
const maxGrouped = 256

// groups splits stacks by the frames below the rule that they are in. The body of a counted repetition is
// a part of the rule around it: most tokens in the middle of a counted string run through several
// repetitions. ok is false where the stacks are so many or so deep that a token may come to a bound of the machine,
// which shared masks do not see.
func groups(s *stacks) (out []group, ok bool) {
	if s.depth > maxDepth/2 {
		return nil, false
	}
	at := make(map[*stacks]int)
	found := 0
	var visit func(above []frame, f frame)
	visit = func(above []frame, f frame) {
		above = append(slices.Clip(above), f)
		if f.state.rule.inner {
			for _, g := range f.below.frames {
				if found <= maxGrouped {
					visit(above, g)
				}
			}
			return
		}
		found++
		i, known := at[f.below]
		if !known {
			i = len(out)
			at[f.below] = i
			out = append(out, group{below: f.below})
		}
		out[i].tops = append(out[i].tops, above)
	}
	for _, f := range s.frames {
		visit(nil, f)
	}
	return out, found <= maxGrouped
}

// stacksOn returns the stacks of a group on what is below it in m, with counts as a function has them.
func (g group) stacksOn(m *machine, below *stacks, count func(frame) int32) *stacks {
	all := m.sets[dead]
	for _, top := range g.tops {
		s := below
		for _, f := range slices.Backward(top) {
			s = m.on(s, f.state, count(f))
		}
		all = m.union(all, s)
	}
	return all
}

// exactBytes is the length of text ahead for which counts are kept exactly in shared masks.
const exactBytes = 16

// rounded returns a count that behaves as f's does for exactBytes more repetitions, the same
// one for all that do.
func (f frame) rounded() int32 {
	c := f.state.count
	switch {
	case c == nil:
		return 0
	case f.count+exactBytes < c.min:
		return 0
	case f.count >= c.min && (c.max == unbounded || f.count+exactBytes < c.max):
		return c.min
	}
	return f.count
}

// shared returns the mask of a group with what is below it unknown, nil where that takes more than the bound on
// the work. Masks are the same for all answers that come to the same states.
func (v *Vocabulary) shared(g group) *mask {
	limit := unbounded
	parts := make([]string, len(g.tops))
	for i, top := range g.tops {
		var key []byte
		for _, f := range top {
			key = binary.AppendUvarint(key, f.state.id)
			key = binary.AppendUvarint(key, uint64(f.rounded()))
			if f.state.count != nil {
				limit = exactBytes
			}
		}
		parts[i] = string(key)
	}
	slices.Sort(parts)
	var key []byte
	for _, p := range parts {
		key = append(binary.AppendUvarint(key, uint64(len(p))), p...)
	}
	v.mu.Lock()
	found := v.masks[string(key)]
	v.mu.Unlock()
	if found != nil {
		return found
	}
	m := newMachine()
	made := &mask{bits: make([]uint64, v.words)}
	v.walk(m, 0, g.stacksOn(m, m.sets[bottom], frame.rounded), limit, true, made)
	if m.spent() {
		return nil
	}
	made.pack()
	v.mu.Lock()
	defer v.mu.Unlock()
	size := made.maskBytes() + len(key)
	if v.held+size > maxMaskBytes {
		clear(v.masks)
		v.held = 0
	}
	v.masks[string(key)] = made
	v.held += size
	return made
}

// nodeBytes returns the bytes from the root to a node.
func (v *Vocabulary) nodeBytes(n int32) []byte {
	return v.tokens[v.sorted[v.nodes[n].first]][:v.nodes[n].depth]
}
