package kvcache

import (
	"fmt"
	"slices"
	"sync/atomic"

	"glimpse/kernels"
	"glimpse/model"
)

// Cache holds what the layers of a model know of one sequence: keys and values of those that have some (Config.HoldsKV), for every
// KV head its own list of entries in ascending order of position, since heads may keep
// different ones after eviction, and the states of recurrent layers. A Cache belongs to one goroutine.
type Cache struct {
	layers []layer
	of     *model.Config
	dtype  kernels.DType // of keys and values
	kv     model.KVShape // of layers without a window
	next   int32
	// long tells that its rows are rotated by the frequencies of long prompts, which have
	// more than longAfter tokens (0: there are none); expected is what Expect said.
	long                bool
	longAfter, expected int
	version             atomic.Uint64 // another one after every change of where pairs lie or how many there are

	prefilling bool  // from the start of a prefill to its end
	whole      bool  // HoldWindows
	counts     bool  // memory of a processor, which is only counted
	back       int32 // position that Truncate may go back to, see Undoable; -1: none
	// joint, where it is not nil, is the positions of all layers together, which then are its parts (pairs.onDevice).
	joint *kernels.Selection
}

// cacheRoom is the memory of the layers on a device. Those of several may be filled by
// several goroutines.
type cacheRoom struct {
	on kernels.Backend
	// spare is memory that Retain has freed during a prefill, for the next layer:
	// handing it back to the runtime, which collects it some time later, would let
	// several layers' full caches lie around.
	spare []*kernels.Tensor
	rows  []kernels.KV // views that append uses, for as long as it runs
}

// GrowEntries is the least number of entries that a full head grows by. It is
// small because the spare room is memory that eviction was meant to free.
const GrowEntries = 16

// New returns an empty cache for one sequence.
func New(m *model.Model) *Cache {
	c := &Cache{
		of: &m.Config, dtype: m.CacheDType(), kv: model.KVShape{Heads: m.Config.KVHeads, Dim: m.Config.HeadDim}, back: -1, counts: m.Counts() && !m.Backend.Traits().Device,
	}
	if m.Config.LongRoPE != nil {
		c.longAfter = m.Config.LongRoPE.After
	}
	for _, s := range m.Stages() {
		room := &cacheRoom{on: s.On}
		for l := s.From; l < s.To; l++ {
			c.layers = append(c.layers, newLayer(c, room, &m.Config, l))
		}
	}
	return c
}

// pairs are those of a layer.
func (c *Cache) pairs(layer int) *pairs { return c.layers[layer].held() }

// attends tells that a layer is not recurrent.
func (c *Cache) attends(layer int) bool { return !isRecurrent(c.layers[layer]) }

// Next is the absolute position of the next token. Eviction does not change it.
func (c *Cache) Next() int32 { return c.next }

// Model is the configuration of the model that it is of.
func (c *Cache) Model() *model.Config { return c.of }

// DType is the type of the keys and values.
func (c *Cache) DType() kernels.DType { return c.dtype }

// On is the device that holds a layer.
func (c *Cache) On(layer int) kernels.Backend { return c.pairs(layer).room.on }

// Layers is the number of layers.
func (c *Cache) Layers() int { return len(c.layers) }

// KVHeads is the number of KV heads of a layer without a window, and of all layers but those whose Mixer has its own.
func (c *Cache) KVHeads() int { return c.kv.Heads }

// Heads is the number of KV heads of all layers that hold keys and values.
func (c *Cache) Heads() (n int) {
	for l := range c.layers {
		if c.attends(l) {
			n += c.LayerKVHeads(l)
		}
	}
	return n
}

// LayerKVHeads is the number of KV heads that a layer holds pairs of; 0 where it reads another one's.
func (c *Cache) LayerKVHeads(layer int) int { return len(c.pairs(layer).heads) }

// Entries is the number of pairs that a layer's KV head holds.
func (c *Cache) Entries(layer, head int) int { return len(c.pairs(layer).heads[head].pos) }

// Pairs is how many all layers and KV heads hold.
func (c *Cache) Pairs() (n int) {
	for l := range c.layers {
		for h := range c.pairs(l).heads {
			n += c.Entries(l, h)
		}
	}
	return n
}

// Positions are the absolute positions of the entries, ascending. The slice is
// the cache's own and valid until the next change.
func (c *Cache) Positions(layer, head int) []int32 {
	p := c.pairs(layer)
	p.settle()
	return p.heads[head].pos
}

// View is the layer's keys and values, one KV per head, valid until the next
// change of the layer. The positions are right where the layer has a window, which
// alone reads them; else they may be from before an eviction on a device.
func (c *Cache) View(layer int) []kernels.KV {
	kv := make([]kernels.KV, c.LayerKVHeads(layer))
	for h := range kv {
		kv[h] = c.PairInto(layer, h, new(kernels.Tensor), new(kernels.Tensor))
	}
	return kv
}

// PairInto is the keys and values of one head, in views that are k and v.
func (c *Cache) PairInto(layer, head int, k, v *kernels.Tensor) kernels.KV {
	return c.pairs(layer).view(head, k, v)
}

// BeginPrefill and EndPrefill surround the passes over which freed memory is used
// again.
func (c *Cache) BeginPrefill() { c.prefilling = true }

func (c *Cache) EndPrefill() {
	c.prefilling = false
	for l := range c.layers {
		c.pairs(l).room.spare = nil
	}
}

// ReserveLayer makes room for n more entries in every head of a layer, which come so many at a time.
func (c *Cache) ReserveLayer(layer, n, together int) { c.layers[layer].reserveEntries(n, together) }

// Lengths are the entries of every head.
func (c *Cache) Lengths() (n [][]int) {
	for l := range c.layers {
		n = append(n, nil)
		for i := range c.pairs(l).heads {
			n[l] = append(n[l], c.Entries(l, i))
		}
	}
	return n
}

// ReserveGrown makes the room that n more entries take, one by one, in heads that have more than they had.
func (c *Cache) ReserveGrown(before [][]int, n int) {
	for l := range c.layers {
		p := c.pairs(l)
		for i := range p.heads {
			h := &p.heads[i]
			if len(h.pos) <= before[l][i] {
				continue
			}
			room := h.capacity()
			for room < len(h.pos)+n {
				room = p.grown(room)
			}
			if w, ok := c.layers[l].(*windowed); ok && w.slides() {
				room = min(room, max(h.capacity(), p.grown(w.window-1+kernels.WindowBlock)))
			}
			if room > h.capacity() {
				p.outgrow(h, room)
			}
		}
	}
}

// Append adds k, v [n, kvHeads, headDim] at positions pos [n], which must
// ascend and follow those already held.
func (c *Cache) Append(layer int, k, v *kernels.Tensor, pos []int32) {
	p := c.pairs(layer)
	room := p.room
	for len(room.rows) < len(p.heads) {
		room.rows = append(room.rows, kernels.KV{K: new(kernels.Tensor), V: new(kernels.Tensor)})
	}
	to := room.rows[:len(p.heads)]
	if len(pos) > 0 {
		c.layers[layer].slide(pos[0], false)
	}
	for i := range to {
		h := &p.heads[i]
		n := len(h.pos)
		p.makeRoom(h, len(pos))
		h.k.RowsInto(to[i].K, n, n+len(pos))
		h.v.RowsInto(to[i].V, n, n+len(pos))
		h.pos = append(h.pos, pos...)
	}
	room.on.CopyPairs(to, k, v)
	for i := range to { // which keep no memory
		*to[i].K, *to[i].V = kernels.Tensor{}, kernels.Tensor{}
	}
	c.changed()
}

// changed notes that where pairs lie or how many there are has changed.
func (c *Cache) changed() { c.version.Store(cacheVersions.Add(1)) }

// cacheVersions makes every version of every cache another one.
var cacheVersions atomic.Uint64

// Retain keeps, in every KV head of a layer, only the entries at the given
// ascending indices, and frees the memory of the others. Positions stay what
// they were. On an error nothing has changed.
func (c *Cache) Retain(layer int, keep [][]int32) (err error) {
	defer kernels.CatchDevice(&err)
	p := c.pairs(layer)
	if err := p.checkKept("retain", layer, keep); err != nil {
		return err
	}
	p.retain(keep)
	return nil
}

// Seen is the number of entries of a head that a row at position pos, itself the
// last entry, sees through a sliding window of the given width; 0 is no window.
func (c *Cache) Seen(layer, head int, pos int32, window int) int {
	of := c.pairs(layer)
	if window > 0 {
		of.settle()
	}
	p := of.heads[head].pos
	return len(p) - FirstSeen(p, pos, window)
}

// LayerPairBytes is the memory of one entry of one head of a layer: a key and a value. Those in groups that are among the newest
// take more.
func (c *Cache) LayerPairBytes(layer int) int64 { return c.pairs(layer).pairBytes() }

// NewestBytes is the memory of the newest n entries of a head, without spare room.
func (c *Cache) NewestBytes(layer, head, n int) int64 {
	p := c.pairs(layer)
	return p.entryBytes(n, min(n, p.recent(head)))
}

// EntriesBytes is the memory of some entries of a head, by their indices.
func (c *Cache) EntriesBytes(layer, head int, entries []int32) int64 {
	p, recent := c.pairs(layer), 0
	first := c.Entries(layer, head) - p.recent(head)
	for _, i := range entries {
		if int(i) >= first {
			recent++
		}
	}
	return p.entryBytes(len(entries), recent)
}

// TokenBytes is the memory of the pairs of one token in all layers.
func (c *Cache) TokenBytes() (n int64) {
	for l := range c.layers {
		if c.attends(l) {
			n += int64(c.LayerKVHeads(l)) * c.LayerPairBytes(l)
		}
	}
	return n
}

// Fork returns a new cache that holds only the entries at the given ascending
// indices, keep[layer][kvHead]; nil keeps everything, of a layer or of all. States of recurrent layers are copied. The original is unchanged.
func (c *Cache) Fork(keep [][][]int32) (*Cache, error) { return c.fork(keep, 0) }

// ForkFor is Fork of everything, with room in every head for so many entries more, so that they come without another copy.
func (c *Cache) ForkFor(entries int) (*Cache, error) { return c.fork(nil, entries) }

func (c *Cache) fork(keep [][][]int32, more int) (_ *Cache, err error) {
	defer kernels.CatchDevice(&err)
	if keep == nil {
		keep = make([][][]int32, len(c.layers))
	}
	if len(keep) != len(c.layers) {
		return nil, fmt.Errorf("fork: kept indices for %d layers, want %d", len(keep), len(c.layers))
	}
	out := &Cache{
		of: c.of, dtype: c.dtype, kv: c.kv, next: c.next, whole: c.whole, back: -1, long: c.long, longAfter: c.longAfter, expected: c.expected, counts: c.counts,
	}
	var room *cacheRoom
	for l, x := range c.layers {
		if l == 0 || c.pairs(l).room != c.pairs(l-1).room {
			room = &cacheRoom{on: c.On(l)}
		}
		if keep[l] != nil {
			if err := c.pairs(l).checkKept("fork", l, keep[l]); err != nil {
				return nil, err
			}
		}
		out.layers = append(out.layers, x.fork(out, room, keep[l], more))
	}
	return out, nil
}

// Bytes is the memory that keys and values hold, spare room included, and states of recurrent layers. The
// positions (4 bytes an entry, on the host) are not counted.
func (c *Cache) Bytes() (n int64) {
	for l := range c.layers {
		n += c.LayerBytes(l)
	}
	return n
}

// LayerBytes is the part of Bytes that one layer holds.
func (c *Cache) LayerBytes(layer int) int64 { return c.layers[layer].bytes() }

// Undoable makes windows keep, from now on until Truncate, what they hold, pairs in groups be there as they are now, and marks the
// states of recurrent layers: decoding can be undone.
func (c *Cache) Undoable() {
	c.back = c.next
	for _, l := range c.layers {
		l.mark()
	}
}

// Rewindable tells whether Truncate can go back to a position, at which no window has lost an entry and whose states are there.
func (c *Cache) Rewindable(next int32) bool {
	return !slices.ContainsFunc(c.layers, func(l layer) bool { return !l.rewindable(next) })
}

// Truncate drops every entry at position next or later, so that the following
// token stands there: it undoes decoding. Memory for the dropped entries is
// freed beyond a small reserve. What has left a window does not come back, nor an earlier state: where the token would see it, it
// is an error (see Undoable and Rewindable).
func (c *Cache) Truncate(next int32) (err error) {
	defer kernels.CatchDevice(&err)
	if next > c.next || next < 0 {
		return fmt.Errorf("truncate cache: position %d, want 0 to %d", next, c.next)
	}
	if !c.Rewindable(next) {
		return fmt.Errorf("truncate cache: position %d of %d, whose sliding window or state is not held any more", next, c.next)
	}
	c.changed()
	for _, l := range c.layers {
		l.truncate(next)
	}
	c.next, c.back = next, -1
	return nil
}

// Expect tells an empty cache the tokens of a prompt that enters it in several passes. A
// model with LongRoPE chooses its frequencies by them, once and for the whole sequence:
// keys that are rotated one way cannot be compared with queries that are rotated another.
// Without it the first pass counts as the whole prompt.
func (c *Cache) Expect(tokens int) { c.expected = tokens }

// Begin chooses the frequencies where a pass of so many tokens is the first.
func (c *Cache) Begin(tokens int) {
	if c.next == 0 {
		c.long = c.longAfter > 0 && max(tokens, c.expected) > c.longAfter
	}
}

// Views are the keys and values of all layers, [layer][kvHead].
func (c *Cache) Views() [][]kernels.KV {
	out := make([][]kernels.KV, c.Layers())
	for l := range out {
		out[l] = c.View(l)
	}
	return out
}

// FirstSeen is the index of the first of ascending positions that a row at
// position pos sees; 0 without a window.
func FirstSeen(positions []int32, pos int32, window int) int {
	if window <= 0 {
		return 0
	}
	first, _ := slices.BinarySearch(positions, pos-int32(window)+1)
	return first
}

func CheckAscending(idx []int32, n int) error {
	last := int32(-1)
	for _, j := range idx {
		if j <= last || int(j) >= n {
			return fmt.Errorf("index %d after %d, want ascending below %d", j, last, n)
		}
		last = j
	}
	return nil
}

func Positions(from int32, n int) []int32 {
	pos := make([]int32, n)
	for i := range pos {
		pos[i] = from + int32(i)
	}
	return pos
}

// RowsAfter places rows after the cache as it is: their positions, and the tables that rotate
// their queries and keys, by layer.
func (c *Cache) RowsAfter(m *model.Model, rows int) (pos []int32, queries, keys []*kernels.RoPETable) {
	return m.RowsAfter(c.next, rows, c.long)
}

// Advance moves on what the next token's position is.
func (c *Cache) Advance(tokens int) { c.next += int32(tokens) }

// Long tells whether the sequence is rotated by the frequencies of long prompts.
func (c *Cache) Long() bool { return c.long }

// Version is another one after every change of where pairs lie or how many there are.
func (c *Cache) Version() uint64 { return c.version.Load() }

// Grow makes room for n more entries in every head of a layer, and returns how many the fullest
// then has.
func (c *Cache) Grow(layer, n int) (longest int) {
	c.layers[layer].slide(c.next, false)
	p := c.pairs(layer)
	for i := range p.heads {
		h := &p.heads[i]
		p.makeRoom(h, n)
		longest = max(longest, len(h.pos)+n)
	}
	return longest
}

// Written notes that a step writes a pair at the next position into every head by itself, for
// which there is room.
func (c *Cache) Written() {
	for l := range c.layers {
		heads := c.pairs(l).heads
		for i := range heads {
			h := &heads[i]
			h.pos = append(h.pos, c.next)
		}
	}
	c.changed()
}
