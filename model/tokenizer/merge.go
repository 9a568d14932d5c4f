package tokenizer

import (
	"math/bits"
	"sync"
)

// pairTable maps a pair of ids to the merge that joins them. It is a hash table
// with open addressing, since this lookup is what encoding spends its time on.
type pairTable struct {
	slots []pairSlot
	shift uint
}

type pairSlot struct {
	key   uint64 // pairKey, 0 for a free slot
	value uint64 // mergeResult
}

// noMerge is the value of a pair that no merge joins; it ranks after every
// merge.
const noMerge = ^uint64(0)

// mergeResult packs a merge's rank and the id it makes, so that the order of the
// values is the order of the ranks.
func mergeResult(rank int, id int32) uint64 { return uint64(rank)<<32 | uint64(uint32(id)) }

func newPairTable(n int) pairTable {
	size := bits.Len(uint(2*n + 2)) // at most half full
	return pairTable{slots: make([]pairSlot, 1<<size), shift: uint(64 - size)}
}

func pairKey(left, right int32) uint64 { return uint64(left+1)<<32 | uint64(uint32(right)) }

func (t *pairTable) slot(key uint64) *pairSlot {
	mask := uint64(len(t.slots) - 1)
	// Fibonacci hashing; the upper bits are the well-mixed ones.
	for i := key * 0x9E3779B97F4A7C15 >> t.shift; ; i++ {
		s := &t.slots[i&mask]
		if s.key == key || s.key == 0 {
			return s
		}
	}
}

// putMerge sets the merge of a pair; of two for one pair the last counts, as in the
// reference.
func (t *pairTable) putMerge(left, right int32, result uint64) {
	key := pairKey(left, right)
	*t.slot(key) = pairSlot{key, result}
}

// getMerge returns the merge of a pair, or noMerge.
func (t *pairTable) getMerge(left, right int32) uint64 {
	if s := t.slot(pairKey(left, right)); s.key != 0 {
		return s.value
	}
	return noMerge
}

// pair is what pairKey has made a slot's key of.
func (s pairSlot) pair() (left, right int32) { return int32(s.key>>32) - 1, int32(uint32(s.key)) }

// scanSymbols is the number of symbols up to which looking through all pairs for
// the next merge is faster than keeping a heap.
const scanSymbols = 48

// applyMerges runs the merges on ids in place and returns how many ids are left.
func (t *pairTable) applyMerges(ids []int32) int {
	switch {
	case len(ids) < 2:
		return len(ids)
	case len(ids) <= scanSymbols:
		return t.applyScan(ids)
	}
	return t.applyHeap(ids)
}

func (t *pairTable) applyScan(ids []int32) int {
	var buffer [scanSymbols]uint64
	pairs := buffer[:len(ids)-1] // pairs[i] joins ids[i] and ids[i+1]
	for i := range pairs {
		pairs[i] = t.getMerge(ids[i], ids[i+1])
	}
	for len(pairs) > 0 {
		at, best := 0, pairs[0]
		for i, p := range pairs {
			if p < best {
				at, best = i, p
			}
		}
		if best == noMerge {
			break
		}
		ids[at] = int32(uint32(best))
		copy(ids[at+1:], ids[at+2:])
		ids = ids[:len(ids)-1]
		copy(pairs[at:], pairs[at+1:])
		pairs = pairs[:len(pairs)-1]
		if at > 0 {
			pairs[at-1] = t.getMerge(ids[at-1], ids[at])
		}
		if at < len(pairs) {
			pairs[at] = t.getMerge(ids[at], ids[at+1])
		}
	}
	return len(ids)
}

// mergeScratch is the working memory of applyHeap. Symbols are a linked list in
// the order of the text; pair[i] is the merge of symbol i with the next one.
type mergeScratch struct {
	prev, next []int32
	pair       []uint64
	heap       pairHeap
}

// maxPooled bounds the symbols of the scratch that is kept for reuse.
const maxPooled = 1 << 16

var scratchPool = sync.Pool{New: func() any { return new(mergeScratch) }}

// applyHeap takes the merges from a heap ordered by rank, then position. An
// entry whose pair has changed since is dropped when it comes up: a pair only
// ever grows, so it cannot change and come back to the same merge.
func (t *pairTable) applyHeap(ids []int32) int {
	s := scratchPool.Get().(*mergeScratch)
	n := len(ids)
	if cap(s.next) < n {
		s.prev, s.next, s.pair = make([]int32, n), make([]int32, n), make([]uint64, n)
		s.heap = make(pairHeap, 0, n)
	}
	prev, next, pair, heap := s.prev[:n], s.next[:n], s.pair[:n], s.heap[:0]
	for i := range ids {
		prev[i], next[i] = int32(i-1), int32(i+1)
		pair[i] = noMerge
		if i+1 < n {
			if pair[i] = t.getMerge(ids[i], ids[i+1]); pair[i] != noMerge {
				heap = append(heap, heapEntry(pair[i], i))
			}
		}
	}
	heap.init()
	update := func(i int32) {
		if pair[i] = t.getMerge(ids[i], ids[next[i]]); pair[i] != noMerge {
			heap.push(heapEntry(pair[i], int(i)))
		}
	}
	for len(heap) > 0 {
		entry := heap.pop()
		i := int32(uint32(entry))
		if pair[i]>>32 != entry>>32 {
			continue
		}
		gone := next[i]
		ids[i] = int32(uint32(pair[i]))
		pair[i], pair[gone] = noMerge, noMerge
		next[i] = next[gone]
		if next[i] < int32(n) {
			prev[next[i]] = i
			update(i)
		}
		if prev[i] >= 0 {
			update(prev[i])
		}
	}
	kept := 0
	for i := int32(0); i < int32(n); i = next[i] {
		ids[kept] = ids[i]
		kept++
	}
	s.heap = heap
	if n <= maxPooled {
		scratchPool.Put(s)
	}
	return kept
}

// heapEntry packs a merge's rank and the position of its pair, in the order in
// which merges apply.
func heapEntry(result uint64, at int) uint64 { return result&^(1<<32-1) | uint64(at) }

// pairHeap is a heap with four children per node: half the levels of a binary
// one, with the children in one cache line.
type pairHeap []uint64

func (h pairHeap) init() {
	for i := (len(h) - 2) / 4; i >= 0 && len(h) > 1; i-- {
		h.down(i)
	}
}

func (h *pairHeap) push(e uint64) {
	*h = append(*h, e)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if s[parent] <= e {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = e
}

func (h *pairHeap) pop() uint64 {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	if last > 1 {
		h.down(0)
	}
	return top
}

func (h pairHeap) down(i int) {
	e := h[i]
	for {
		child := 4*i + 1
		if child >= len(h) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(h)); c++ {
			if h[c] < h[least] {
				least = c
			}
		}
		if h[least] >= e {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = e
}

// bridgeSet knows between which two symbols a merge may reach across: those that
// are the last and the first symbol of the two sides of some merge. Anywhere
// else text can be cut without changing how it is encoded, which keeps what has
// to be merged at once about as long as a word even where the model has no
// pre-tokenizer.
type bridgeSet struct {
	everywhere bool // cut nowhere

	// For bytes exact; for runes a hash decides, and a collision only means
	// one cut less.
	bitmap []uint64
}

const runeBridgeBits = 20

func newBridgeSet(byteLevel bool) bridgeSet {
	if byteLevel {
		return bridgeSet{bitmap: make([]uint64, 1<<16/64)}
	}
	return bridgeSet{bitmap: make([]uint64, 1<<runeBridgeBits/64)}
}

func byteBridge(left, right byte) uint64 { return uint64(left)<<8 | uint64(right) }

func runeBridge(left, right rune) uint64 {
	return (uint64(left)<<32 | uint64(right)) * 0x9E3779B97F4A7C15 >> (64 - runeBridgeBits)
}

func (b *bridgeSet) add(i uint64) { b.bitmap[i/64] |= 1 << (i % 64) }

func (b *bridgeSet) has(i uint64) bool { return b.everywhere || b.bitmap[i/64]&(1<<(i%64)) != 0 }
