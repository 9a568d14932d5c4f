package constraint

import (
	"bytes"
	"math/bits"
	"slices"
	"sync"
)

// Vocabulary is a trie over the bytes of a model's tokens, with the masks that grammars have
// shared so far. It is safe for concurrent use.
type Vocabulary struct {
	tokens [][]byte
	end    []int32
	words  int // of 64 bits, one for each id

	// Nodes in the order of their texts, parents before children; node 0 is the root.
	nodes  []node
	sorted []int32 // ids by their tokens' bytes

	mu    sync.Mutex
	masks map[string]*mask
	held  int // bytes of masks
}

type node struct {
	next  int32 // the node after this one's descendants
	first int32 // in sorted: the first id whose token is the node's text or goes on from there
	depth uint16
	b     byte
}

const (
	maxTokenBytes = 1 << 12  // longer tokens are never allowed
	maxMaskBytes  = 64 << 20 // of shared masks, which are dropped when there are more
)

// NewVocabulary is made once per model. tokens[id] are the bytes that a token adds to a
// text, without the rules of a text's start; nil or empty, as for special tokens: the token is never
// allowed. end are the tokens that end an answer. The tokens are kept.
func NewVocabulary(tokens [][]byte, end []int32) *Vocabulary {
	v := &Vocabulary{tokens: tokens, masks: make(map[string]*mask)}
	ids := len(tokens)
	for _, id := range end {
		if id >= 0 { // −1 stands for none in some configurations
			v.end = append(v.end, id)
			ids = max(ids, int(id)+1)
		}
	}
	v.words = (ids + 63) / 64
	for id, t := range tokens {
		if len(t) > 0 && len(t) <= maxTokenBytes && !slices.Contains(end, int32(id)) {
			v.sorted = append(v.sorted, int32(id))
		}
	}
	slices.SortStableFunc(v.sorted, func(a, b int32) int { return bytes.Compare(tokens[a], tokens[b]) })
	v.nodes = append(v.nodes, node{})
	var path []int32 // the nodes of the last text
	var last []byte
	closeFrom := func(depth int) {
		for _, n := range path[depth:] {
			v.nodes[n].next = int32(len(v.nodes))
		}
		path = path[:depth]
	}
	for i, id := range v.sorted {
		t := tokens[id]
		common := 0
		for common < len(last) && common < len(t) && last[common] == t[common] {
			common++
		}
		closeFrom(common)
		for d := common; d < len(t); d++ {
			path = append(path, int32(len(v.nodes)))
			v.nodes = append(v.nodes, node{first: int32(i), depth: uint16(d + 1), b: t[d]})
		}
		last = t
	}
	closeFrom(0)
	v.nodes[0].next = int32(len(v.nodes))
	v.nodes = append(v.nodes, node{first: int32(len(v.sorted))}) // bounds the last node's ids
	return v
}

// allowed tells whether a token may be part of a text at all.
func (v *Vocabulary) allowed(id int32) bool {
	return id >= 0 && int(id) < len(v.tokens) && len(v.tokens[id]) > 0 && len(v.tokens[id]) <= maxTokenBytes && !slices.Contains(v.end, id)
}

// A mask is the tokens that are allowed whatever is below some stacks, and what is to be
// looked at with the stacks themselves.
type mask struct {
	bits []uint64 // by ids
	ids  []int32  // instead of bits, where they are few
	left []int32  // nodes at which the stacks may have ended, and the text may go on below them
	deep []int32  // nodes at the depth that the stacks' counts were rounded for
}

// allow adds the tokens of another mask.
func (m *mask) allow(other *mask) {
	for i, word := range other.bits {
		m.bits[i] |= word
	}
	m.setTokens(other.ids)
}

func (m *mask) setTokens(ids []int32) {
	for _, id := range ids {
		m.bits[id>>6] |= 1 << (id & 63)
	}
}

// pack lists the tokens where that takes less memory.
func (m *mask) pack() {
	n := 0
	for _, word := range m.bits {
		n += bits.OnesCount64(word)
	}
	if n > len(m.bits) {
		return
	}
	m.ids = make([]int32, 0, n)
	for i, word := range m.bits {
		for ; word != 0; word &= word - 1 {
			m.ids = append(m.ids, int32(i*64+bits.TrailingZeros64(word)))
		}
	}
	m.bits = nil
}

// maskBytes is about the bytes that the mask holds.
func (m *mask) maskBytes() int { return 8*len(m.bits) + 4*(len(m.ids)+len(m.left)+len(m.deep)) + 128 }

// walk allows in to the tokens below a node that m reads from a set on. Where open, the
// end of the text stands for stacks that are not known. It goes down to limit bytes.
func (v *Vocabulary) walk(m *machine, root int32, from *stacks, limit int, open bool, to *mask) {
	base := int(v.nodes[root].depth)
	sets := make([]*stacks, 1, 16) // by depth below root
	sets[0] = from
	end := v.nodes[root].next
	for i := root + 1; i < end; {
		n := &v.nodes[i]
		d := int(n.depth) - base
		s := m.afterByte(sets[d-1], n.b)
		if s.id == dead {
			i = n.next
			continue
		}
		to.setTokens(v.sorted[n.first:v.nodes[i+1].first])
		if n.next == i+1 {
			i++
			continue
		}
		if open && s.ends {
			to.left = append(to.left, i)
		}
		switch {
		case len(s.frames) == 0:
			i = n.next
			continue
		case int(n.depth) == limit:
			to.deep = append(to.deep, i)
			i = n.next
			continue
		}
		sets = append(sets[:d], s)
		i++
	}
}
