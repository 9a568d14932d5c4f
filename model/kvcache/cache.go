package kvcache

import (
	"fmt"
	"slices"
	"sync/atomic"

	"glimpse/kernels"
	"glimpse/model"
)

// Cache holds the keys and values of one sequence: for every layer that has some (Config.HoldsKV) and KV head
// its own list of entries in ascending order of position, since heads may keep
// different ones after eviction. A Cache belongs to one goroutine.
type Cache struct {
	rooms []*cacheRoom  // by layer
	dtype kernels.DType // of keys and values
	heads [][]headCache // [layer][kvHead]
	dims  []int         // widths of the heads, by layer
	kv    model.KVShape // of layers without a window
	next  int32
	// long tells that its rows are rotated by the frequencies of long prompts, which have
	// more than longAfter tokens (0: there are none); expected is what Expect said.
	long                bool
	longAfter, expected int
	version             atomic.Uint64 // another one after every change of where pairs lie or how many there are

	prefilling bool // from the start of a prefill to its end

	windows []int   // of the layers' attention, 0 for none
	freed   []int32 // by layer: the position after the last one that has left its window and is gone
	whole   bool    // HoldWindows
	counts  bool    // memory of a processor, which is only counted
	held    []bool  // layers that HoldWindow holds whole
	back    int32   // position that Truncate may go back to, see Undoable; -1: none

	// onDevice are per layer the positions of the first entries of its heads where evictions have
	// left them on a device; nil where the host has all. The host has the positions of later entries.
	// joint, where it is not nil, is the positions of all layers together, which then are its parts.
	onDevice []*kernels.Selection
	joint    *kernels.Selection

	states recurrence
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

// headCache is the entries of one KV head: k and v have capacity rows, and
// len(pos) are in use.
type headCache struct {
	k, v *kernels.Tensor
	pos  []int32
}

// GrowEntries is the least number of entries that a full head grows by. It is
// small because the spare room is memory that eviction was meant to free.
const GrowEntries = 16

// New returns an empty cache for one sequence.
func New(m *model.Model) *Cache {
	c := &Cache{
		dtype: m.CacheDType(), dims: make([]int, m.Config.Layers), heads: make([][]headCache, m.Config.Layers),
		kv: model.KVShape{Heads: m.Config.KVHeads, Dim: m.Config.HeadDim}, windows: make([]int, m.Config.Layers), freed: make([]int32, m.Config.Layers), back: -1, held: make([]bool, m.Config.Layers),
		onDevice: make([]*kernels.Selection, m.Config.Layers), counts: m.Counts() && !m.Backend.Traits().Device,
	}
	if m.Config.LongRoPE != nil {
		c.longAfter = m.Config.LongRoPE.After
	}
	for _, s := range m.Stages() {
		room := &cacheRoom{on: s.On}
		for range s.To - s.From {
			c.rooms = append(c.rooms, room)
		}
	}
	for l := range c.heads {
		if m.Config.KVLayer(l) != l { // which has no heads here
			continue
		}
		c.windows[l] = m.Config.Window(l)
		kv := m.Config.KV(l)
		c.dims[l], c.heads[l] = kv.Dim, make([]headCache, kv.Heads)
	}
	if m.Config.Recurrences != nil {
		c.states = recurrence{of: m.Config.Recurrences, now: make([]model.State, m.Config.Layers)}
	}
	return c
}

// Next is the absolute position of the next token. Eviction does not change it.
func (c *Cache) Next() int32 { return c.next }

// DType is the type of the keys and values.
func (c *Cache) DType() kernels.DType { return c.dtype }

// On is the device that holds a layer.
func (c *Cache) On(layer int) kernels.Backend { return c.rooms[layer].on }

// Layers is the number of layers.
func (c *Cache) Layers() int { return len(c.heads) }

// KVHeads is the number of KV heads of a layer without a window, and of all layers but the ones in Config.LayerKV.
func (c *Cache) KVHeads() int { return c.kv.Heads }

// Heads is the number of KV heads of all layers that hold keys and values.
func (c *Cache) Heads() (n int) {
	for l := range c.heads {
		if !c.recurs(l) {
			n += len(c.heads[l])
		}
	}
	return n
}

// LayerKVHeads is the number of KV heads that a layer holds pairs of; 0 where it reads another one's.
func (c *Cache) LayerKVHeads(layer int) int { return len(c.heads[layer]) }

// Entries is the number of pairs that a layer's KV head holds.
func (c *Cache) Entries(layer, head int) int { return len(c.heads[layer][head].pos) }

// Pairs is how many all layers and KV heads hold.
func (c *Cache) Pairs() (n int) {
	for l := range c.heads {
		for h := range c.heads[l] {
			n += c.Entries(l, h)
		}
	}
	return n
}

// Positions are the absolute positions of the entries, ascending. The slice is
// the cache's own and valid until the next change.
func (c *Cache) Positions(layer, head int) []int32 {
	c.settle(layer)
	return c.heads[layer][head].pos
}

// View is the layer's keys and values, one KV per head, valid until the next
// change of the layer. The positions are right where the layer has a window, which
// alone reads them; else they may be from before an eviction on a device.
func (c *Cache) View(layer int) []kernels.KV {
	kv := make([]kernels.KV, len(c.heads[layer]))
	for h := range kv {
		kv[h] = c.heads[layer][h].view(c, layer)
	}
	return kv
}

func (h *headCache) view(c *Cache, layer int) kernels.KV {
	if h.k == nil {
		on := c.On(layer)
		return kernels.KV{K: on.Alloc(c.dtype, 0, c.dims[layer]), V: on.Alloc(c.dtype.OfValues(), 0, c.dims[layer])}
	}
	return h.viewInto(new(kernels.Tensor), new(kernels.Tensor))
}

func (h *headCache) viewInto(k, v *kernels.Tensor) kernels.KV {
	n := len(h.pos)
	return kernels.KV{K: h.k.RowsInto(k, 0, n), V: h.v.RowsInto(v, 0, n), Positions: h.pos}
}

func (h *headCache) capacity() int {
	if h.k == nil {
		return 0
	}
	return h.k.Dim0()
}

// BeginPrefill and EndPrefill surround the passes over which freed memory is used
// again.
func (c *Cache) BeginPrefill() { c.prefilling = true }

func (c *Cache) EndPrefill() {
	c.prefilling = false
	for _, r := range c.rooms {
		r.spare = nil
	}
}

// allocLayer returns memory for exactly capacity entries of a layer, spare memory where there is
// any.
func (c *Cache) allocLayer(layer, capacity int) (k, v *kernels.Tensor) {
	room := c.rooms[layer]
	one := func(d kernels.DType) *kernels.Tensor {
		if i := slices.IndexFunc(room.spare, func(t *kernels.Tensor) bool {
			return t.DType == d && t.Dim0() == capacity && t.Width() == c.dims[layer]
		}); i >= 0 {
			t := room.spare[i]
			room.spare = slices.Delete(room.spare, i, i+1)
			return t
		}
		return room.on.Alloc(d, capacity, c.dims[layer])
	}
	return one(c.dtype), one(c.dtype.OfValues())
}

// keepSpare keeps memory of a layer that is not needed any more for the rest of a prefill.
func (c *Cache) keepSpare(layer int, t *kernels.Tensor) {
	if c.prefilling {
		c.rooms[layer].spare = append(c.rooms[layer].spare, t)
	}
}

// resize moves the entries of a layer's head into memory for exactly capacity entries.
func (c *Cache) resize(layer int, h *headCache, capacity int) {
	on := c.On(layer)
	k, v := c.allocLayer(layer, capacity)
	if n := len(h.pos); n > 0 {
		on.Copy(k.Rows(0, n), h.k.Rows(0, n))
		on.Copy(v.Rows(0, n), h.v.Rows(0, n))
	}
	h.k, h.v = k, v
	c.changed()
}

// outgrow is resize after which the memory before is garbage: where it is only counted, nobody need look for that.
func (c *Cache) outgrow(layer int, h *headCache, capacity int) {
	k, v := h.k, h.v
	if c.resize(layer, h, capacity); c.counts && k != nil {
		c.On(layer).Free([]*kernels.Tensor{k, v})
	}
}

// ReserveLayer makes room for n more entries in every head of a layer, which come so many at a time.
func (c *Cache) ReserveLayer(layer, n, together int) {
	if c.recurs(layer) {
		return
	}
	for i := range c.heads[layer] {
		h := &c.heads[layer][i]
		need := len(h.pos) + n
		if c.slides(layer) {
			need = min(need, c.windows[layer]-1+kernels.WindowBlock-1+together)
		}
		if need > h.capacity() {
			c.resize(layer, h, need)
		}
		h.pos = slices.Grow(h.pos, max(0, need-len(h.pos)))
	}
}

// Lengths are the entries of every head.
func (c *Cache) Lengths() (n [][]int) {
	for l := range c.heads {
		n = append(n, nil)
		for i := range c.heads[l] {
			n[l] = append(n[l], c.Entries(l, i))
		}
	}
	return n
}

// ReserveGrown makes the room that n more entries take, one by one, in heads that have more than they had.
func (c *Cache) ReserveGrown(before [][]int, n int) {
	for l := range c.heads {
		for i := range c.heads[l] {
			h := &c.heads[l][i]
			if len(h.pos) <= before[l][i] {
				continue
			}
			room := h.capacity()
			for room < len(h.pos)+n {
				room = c.grown(l, room)
			}
			if c.slides(l) {
				room = min(room, max(h.capacity(), c.grown(l, c.windows[l]-1+kernels.WindowBlock)))
			}
			if room > h.capacity() {
				c.outgrow(l, h, room)
			}
		}
	}
}

// Append adds k, v [n, kvHeads, headDim] at positions pos [n], which must
// ascend and follow those already held.
func (c *Cache) Append(layer int, k, v *kernels.Tensor, pos []int32) {
	room := c.rooms[layer]
	for len(room.rows) < len(c.heads[layer]) {
		room.rows = append(room.rows, kernels.KV{K: new(kernels.Tensor), V: new(kernels.Tensor)})
	}
	to := room.rows[:len(c.heads[layer])]
	if len(pos) > 0 {
		c.slide(layer, pos[0])
	}
	for i := range to {
		h := &c.heads[layer][i]
		n := len(h.pos)
		c.makeRoom(layer, h, len(pos))
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

// makeRoom grows a full head.
func (c *Cache) makeRoom(layer int, h *headCache, n int) {
	if need := len(h.pos) + n; need > h.capacity() {
		c.outgrow(layer, h, max(need, c.grown(layer, h.capacity())))
	}
}

// grown is what a head grows to from n entries: growEntries more, and what their memory has
// room for beside them, without which a long cache on a device would be copied every few
// tokens.
func (c *Cache) grown(layer, n int) int {
	return c.On(layer).RoomFor(c.dtype, n+GrowEntries, c.dims[layer])
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
	if err := c.checkKept(layer, keep); err != nil {
		return err
	}
	c.settle(layer)
	c.changed()
	for i, idx := range keep {
		h := &c.heads[layer][i]
		if len(idx) == len(h.pos) {
			if h.capacity() > c.grown(layer, len(idx)) {
				c.resize(layer, h, len(idx))
			}
			continue
		}
		from := *h
		anew := h.capacity() > c.grown(layer, len(idx)) // worth new memory; otherwise compact in place
		if anew {
			h.k, h.v = c.allocLayer(layer, len(idx))
		}
		c.On(layer).Gather(h.k.Rows(0, len(idx)), from.k, idx)
		c.On(layer).Gather(h.v.Rows(0, len(idx)), from.v, idx)
		for n, j := range idx {
			h.pos[n] = h.pos[j]
		}
		if anew {
			c.keepSpare(layer, from.k)
			c.keepSpare(layer, from.v)
		}
		h.shorten(len(idx))
	}
	return nil
}

// Seen is the number of entries of a head that a row at position pos, itself the
// last entry, sees through a sliding window of the given width; 0 is no window.
func (c *Cache) Seen(layer, head int, pos int32, window int) int {
	if window > 0 {
		c.settle(layer)
	}
	p := c.heads[layer][head].pos
	return len(p) - FirstSeen(p, pos, window)
}

// PairBytes is the memory of one entry of one head of KVHeads: a key and a value. Those in groups that are among the newest take
// more.
func (c *Cache) PairBytes() int64 { return 2 * int64(c.dtype.Bytes(c.kv.Dim)) }

// LayerPairBytes is PairBytes of a layer.
func (c *Cache) LayerPairBytes(layer int) int64 { return 2 * int64(c.dtype.Bytes(c.dims[layer])) }

// NewestBytes is the memory of the newest n entries of a head, without spare room.
func (c *Cache) NewestBytes(layer, head, n int) int64 {
	return c.entryBytes(layer, n, min(n, c.recent(layer, head)))
}

// EntriesBytes is the memory of some entries of a head, by their indices.
func (c *Cache) EntriesBytes(layer, head int, entries []int32) int64 {
	first, recent := c.Entries(layer, head)-c.recent(layer, head), 0
	for _, i := range entries {
		if int(i) >= first {
			recent++
		}
	}
	return c.entryBytes(layer, len(entries), recent)
}

// entryBytes is the memory of n entries of a layer, where some are not in groups.
func (c *Cache) entryBytes(layer, n, recent int) int64 {
	return int64(n-recent)*c.LayerPairBytes(layer) + int64(recent)*2*int64(kernels.BF16.Bytes(c.dims[layer]))
}

// recent is how many of the newest entries of a head are not in groups; 0 where nothing is.
func (c *Cache) recent(layer, head int) int {
	if h := &c.heads[layer][head]; h.k != nil && c.dtype.Grouped() {
		return h.k.RecentRows()
	}
	return 0
}

// TokenBytes is the memory of the pairs of one token in all layers.
func (c *Cache) TokenBytes() (n int64) {
	for l := range c.heads {
		if !c.recurs(l) {
			n += int64(len(c.heads[l])) * c.LayerPairBytes(l)
		}
	}
	return n
}

// checkKept refuses indices that are not ascending, or not of entries.
func (c *Cache) checkKept(layer int, keep [][]int32) error {
	heads := c.heads[layer]
	if len(keep) != len(heads) {
		return fmt.Errorf("retain layer %d: kept indices for %d KV heads, want %d", layer, len(keep), len(heads))
	}
	for i, idx := range keep {
		if err := CheckAscending(idx, len(heads[i].pos)); err != nil {
			return fmt.Errorf("retain layer %d head %d: %w", layer, i, err)
		}
	}
	return nil
}

// shorten leaves the first n positions, in memory of their own where most of it
// would be unused: under a small budget the positions of a long prompt would
// take more than the keys.
func (h *headCache) shorten(n int) {
	h.pos = h.pos[:n]
	if cap(h.pos) > 2*n+GrowEntries {
		h.pos = append(make([]int32, 0, n+GrowEntries), h.pos...)
	}
}

// Fork returns a new cache that holds only the entries at the given ascending
// indices, keep[layer][kvHead]; nil keeps everything, of a layer or of all. States of recurrent layers are copied. The original is unchanged.
func (c *Cache) Fork(keep [][][]int32) (_ *Cache, err error) {
	defer kernels.CatchDevice(&err)
	if keep != nil && len(keep) != len(c.heads) {
		return nil, fmt.Errorf("fork: kept indices for %d layers, want %d", len(keep), len(c.heads))
	}
	out := &Cache{
		dtype: c.dtype, dims: c.dims, kv: c.kv, next: c.next, heads: make([][]headCache, len(c.heads)),
		windows: c.windows, freed: slices.Clone(c.freed), whole: c.whole, back: -1, held: make([]bool, len(c.heads)), onDevice: make([]*kernels.Selection, len(c.heads)),
		long: c.long, longAfter: c.longAfter, expected: c.expected, counts: c.counts,
		states: recurrence{of: c.states.of},
	}
	var room *cacheRoom
	for l := range c.heads {
		if l == 0 || c.rooms[l] != c.rooms[l-1] {
			room = &cacheRoom{on: c.On(l)}
		}
		out.rooms = append(out.rooms, room)
		c.settle(l)
		whole := keep == nil || keep[l] == nil
		if !whole {
			if err := c.checkKept(l, keep[l]); err != nil {
				return nil, err
			}
		}
		out.heads[l] = make([]headCache, len(c.heads[l]))
		for i := range c.heads[l] {
			from, to := &c.heads[l][i], &out.heads[l][i]
			n := len(from.pos)
			if !whole {
				n = len(keep[l][i])
			}
			to.k, to.v = room.on.Alloc(c.dtype, n, c.dims[l]), room.on.Alloc(c.dtype.OfValues(), n, c.dims[l])
			if whole {
				if n > 0 {
					room.on.Copy(to.k, from.k.Rows(0, n))
					room.on.Copy(to.v, from.v.Rows(0, n))
				}
				to.pos = append([]int32(nil), from.pos...)
				continue
			}
			to.pos = make([]int32, n)
			for at, j := range keep[l][i] {
				to.pos[at] = from.pos[j]
			}
			if n > 0 {
				room.on.Gather(to.k, from.k, keep[l][i])
				room.on.Gather(to.v, from.v, keep[l][i])
			}
		}
	}
	out.states.now = out.copyStates(c.states.now)
	return out, nil
}

// Bytes is the memory that keys and values hold, spare room included, and states of recurrent layers. The
// positions (4 bytes an entry, on the host) are not counted.
func (c *Cache) Bytes() int64 {
	var n int64
	for l := range c.heads {
		n += c.LayerBytes(l)
	}
	return n
}

// LayerBytes is the part of Bytes that one layer holds.
func (c *Cache) LayerBytes(layer int) int64 {
	var n int64
	for i := range c.heads[layer] {
		if h := &c.heads[layer][i]; h.k != nil {
			n += int64(h.k.Bytes() + h.v.Bytes())
		}
	}
	if c.recurrent() {
		n += c.states.now[layer].Bytes()
		if c.states.marked != nil {
			n += c.states.marked[layer].Bytes()
		}
	}
	return n
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
	switch {
	case !c.recurrent() || next == c.next:
	case next == 0:
		clear(c.states.now)
	default:
		c.states.now = c.states.marked
	}
	c.states.marked = nil
	c.changed()
	for l := range c.heads {
		c.settle(l)
		for i := range c.heads[l] {
			h := &c.heads[l][i]
			n, _ := slices.BinarySearch(h.pos, next)
			h.shorten(n)
			if h.k != nil && c.dtype.Grouped() {
				h.k.CutRows(n)
				h.v.CutRows(n)
			}
			if h.capacity() > c.grown(l, n) {
				c.resize(l, h, n)
			}
		}
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

// PairInto is the keys and values of one head, in views that are k and v.
func (c *Cache) PairInto(layer, head int, k, v *kernels.Tensor) kernels.KV {
	return c.heads[layer][head].viewInto(k, v)
}

// Grow makes room for n more entries in every head of a layer, and returns how many the fullest
// then has.
func (c *Cache) Grow(layer, n int) (longest int) {
	c.slide(layer, c.next)
	for i := range c.heads[layer] {
		h := &c.heads[layer][i]
		c.makeRoom(layer, h, n)
		longest = max(longest, len(h.pos)+n)
	}
	return longest
}

// Written notes that a step writes a pair at the next position into every head by itself, for
// which there is room.
func (c *Cache) Written() {
	for l := range c.heads {
		for i := range c.heads[l] {
			h := &c.heads[l][i]
			h.pos = append(h.pos, c.next)
		}
	}
	c.changed()
}
