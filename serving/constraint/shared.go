package constraint

import (
	"encoding/binary"
	"slices"
)

// A group is stacks that have the frames from tail on in common.
type group struct {
	tail *frame
	tops []*frame
}

// groups splits stacks by what is below the rule that they are in. The body of a counted repetition is
// a part of the rule around it: most tokens in the middle of a counted string run through several
// repetitions.
func groups(tops []*frame) []group {
	var out []group
	at := make(map[*frame]int)
	for _, f := range tops {
		tail := f.rule().tail
		i, known := at[tail]
		if !known {
			i = len(out)
			at[tail] = i
			out = append(out, group{tail: tail})
		}
		out[i].tops = append(out[i].tops, f)
	}
	return out
}

// rule returns the frame of the rule that a stack is in.
func (f *frame) rule() *frame {
	for f.state.rule.inner {
		f = f.tail
	}
	return f
}

// near tells whether stacks are so many or so deep that a token may come to a bound of the machine,
// which shared masks do not see.
func near(tops []*frame) bool {
	return len(tops) > maxStacks/2 || slices.ContainsFunc(tops, func(f *frame) bool { return f.depth > maxDepth/2 })
}

// exactBytes is the length of text ahead for which counts are kept exactly in shared masks.
const exactBytes = 16

// rounded returns a count that behaves as f's does for exactBytes more repetitions, the same
// one for all that do.
func (f *frame) rounded() int32 {
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

// shared returns the mask of a group with its tail unknown. Masks are the same for all
// answers that come to the same states.
func (v *Vocabulary) shared(g group) *mask {
	limit := unbounded
	parts := make([]string, len(g.tops))
	for i, f := range g.tops {
		var key []byte
		for ; f != g.tail; f = f.tail {
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
	start := m.adopt(g.tops, false, func(f *frame) (*frame, int32) {
		if f.tail == g.tail {
			return nil, f.rounded()
		}
		return f.tail, f.rounded()
	})
	made := &mask{bits: make([]uint64, v.words)}
	v.walk(m, 0, start, limit, true, made)
	made.pack()
	v.mu.Lock()
	defer v.mu.Unlock()
	size := made.size() + len(key)
	if v.held+size > maxMaskBytes {
		clear(v.masks)
		v.held = 0
	}
	v.masks[string(key)] = made
	v.held += size
	return made
}

// text returns the bytes from the root to a node.
func (v *Vocabulary) text(n int32) []byte {
	return v.tokens[v.sorted[v.nodes[n].first]][:v.nodes[n].depth]
}
