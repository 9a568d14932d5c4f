package kvcache

import (
	"fmt"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

// layer is what a cache holds of one layer: pairs of keys and values of all rows, those of a window (windowed), or a state
// (recurrent). A layer that reads another one's has pairs without a head.
type layer interface {
	// held are the layer's pairs; of a layer that holds none, heads without entries.
	held() *pairs
	// reserveEntries makes room for n more entries in every head, which come so many at a time.
	reserveEntries(n, together int)
	// slide lets go of what a row at position next, and all after it, do not read; ended tells that they come one by one, so
	// that memory for more at a time is freed, too.
	slide(next int32, ended bool)
	// mark lets the cache go back to what is there now, see Undoable.
	mark()
	// rewindable tells whether truncate can go back to a position.
	rewindable(next int32) bool
	// truncate drops what rows from position next on have left.
	truncate(next int32)
	// fork is a copy in a cache, of the entries at ascending indices, which are checked (nil: of all), with room for more.
	fork(to *Cache, room *cacheRoom, keep [][]int32, more int) layer
	// bytes is the memory that is held, spare room included.
	bytes() int64
}

// newLayer is layer l of a model's cache, which is empty.
func newLayer(c *Cache, room *cacheRoom, m *model.Config, l int) layer {
	p := &pairs{c: c, room: room}
	if m.KVLayer(l) != l {
		return p
	}
	kv := m.KV(l)
	p.dim, p.heads = kv.Dim, make([]headCache, kv.Heads)
	switch {
	case m.Recurrent(l):
		return &recurrent{pairs: p, of: m.Recurrence(l)}
	case m.Window(l) > 0:
		return &windowed{pairs: p, window: m.Window(l)}
	}
	return p
}

// pairs are the keys and values of a layer, by KV head.
type pairs struct {
	c     *Cache
	room  *cacheRoom
	dim   int // of a head
	heads []headCache
	// onDevice are the positions of the first entries of the heads where evictions have left them on a device; nil where the
	// host has all. The host has the positions of later entries.
	onDevice *kernels.Selection
}

// headCache is the entries of one KV head: k and v have capacity rows, and
// len(pos) are in use. bias are the biases of the first entries, nil where none has one.
type headCache struct {
	k, v *kernels.Tensor
	pos  []int32
	bias *kernels.Tensor
}

func (p *pairs) held() *pairs { return p }

func (p *pairs) slide(int32, bool) {}

func (p *pairs) rewindable(int32) bool { return true }

// view is the keys and values of a head, in views that are k and v.
func (p *pairs) view(head int, k, v *kernels.Tensor) kernels.KV {
	h := &p.heads[head]
	if h.k == nil {
		return kernels.KV{K: p.room.on.Alloc(p.c.dtype, 0, p.dim), V: p.room.on.Alloc(p.c.dtype.OfValues(), 0, p.dim)}
	}
	n := len(h.pos)
	return kernels.KV{K: h.k.RowsInto(k, 0, n), V: h.v.RowsInto(v, 0, n), Positions: h.pos, Bias: h.bias}
}

func (h *headCache) capacity() int {
	if h.k == nil {
		return 0
	}
	return h.k.Dim0()
}

// alloc returns memory for exactly capacity entries, spare memory where there is any.
func (p *pairs) alloc(capacity int) (k, v *kernels.Tensor) {
	room := p.room
	one := func(d kernels.DType) *kernels.Tensor {
		if i := slices.IndexFunc(room.spare, func(t *kernels.Tensor) bool {
			return t.DType == d && t.Dim0() == capacity && t.Width() == p.dim
		}); i >= 0 {
			t := room.spare[i]
			room.spare = slices.Delete(room.spare, i, i+1)
			return t
		}
		return room.on.Alloc(d, capacity, p.dim)
	}
	return one(p.c.dtype), one(p.c.dtype.OfValues())
}

// keepSpare keeps memory that is not needed any more for the rest of a prefill.
func (p *pairs) keepSpare(freed ...*kernels.Tensor) {
	if p.c.prefilling {
		p.room.spare = append(p.room.spare, freed...)
	}
}

// resize moves the entries of a head into memory for exactly capacity entries.
func (p *pairs) resize(h *headCache, capacity int) {
	k, v := p.alloc(capacity)
	if n := len(h.pos); n > 0 {
		p.room.on.Copy(k.Rows(0, n), h.k.Rows(0, n))
		p.room.on.Copy(v.Rows(0, n), h.v.Rows(0, n))
	}
	h.k, h.v = k, v
	p.c.changed()
}

// outgrow is resize after which the memory before is garbage: where it is only counted, nobody need look for that.
func (p *pairs) outgrow(h *headCache, capacity int) {
	k, v := h.k, h.v
	if p.resize(h, capacity); p.c.counts && k != nil {
		p.room.on.Free([]*kernels.Tensor{k, v})
	}
}

// makeRoom grows a full head.
func (p *pairs) makeRoom(h *headCache, n int) {
	if need := len(h.pos) + n; need > h.capacity() {
		p.outgrow(h, max(need, p.grown(h.capacity())))
	}
}

// grown is what a head grows to from n entries: growEntries more, and what their memory has
// room for beside them, without which a long cache on a device would be copied every few
// tokens.
func (p *pairs) grown(n int) int { return p.room.on.Traits().RoomFor(p.c.dtype, n+GrowEntries, p.dim) }

func (p *pairs) reserveEntries(n, _ int) { p.reserveUpTo(n, 0) }

// reserveUpTo is reserveEntries of at most so many entries in all; 0: of any number.
func (p *pairs) reserveUpTo(n, most int) {
	for i := range p.heads {
		h := &p.heads[i]
		need := len(h.pos) + n
		if most > 0 {
			need = min(need, most)
		}
		if need > h.capacity() {
			p.resize(h, need)
		}
		h.pos = slices.Grow(h.pos, max(0, need-len(h.pos)))
	}
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

// retain is Cache.Retain, of indices that are checked.
func (p *pairs) retain(keep [][]int32) {
	p.settle()
	p.c.changed()
	for i, idx := range keep {
		h := &p.heads[i]
		anew := h.capacity() > p.grown(len(idx)) // worth new memory; otherwise compact in place
		if len(idx) == len(h.pos) {
			if anew {
				p.resize(h, len(idx))
			}
			continue
		}
		from := *h
		if anew {
			h.k, h.v = p.alloc(len(idx))
		}
		p.room.on.Gather(h.k.Rows(0, len(idx)), from.k, idx)
		p.room.on.Gather(h.v.Rows(0, len(idx)), from.v, idx)
		h.bias = p.keptBiases(from.bias, idx)
		for n, j := range idx {
			h.pos[n] = h.pos[j]
		}
		if anew {
			p.keepSpare(from.k, from.v)
		}
		h.shorten(len(idx))
	}
}

// checkKept refuses indices that are not ascending, or not of entries.
func (p *pairs) checkKept(what string, layer int, keep [][]int32) error {
	if len(keep) != len(p.heads) {
		return fmt.Errorf("%s layer %d: kept indices for %d KV heads, want %d", what, layer, len(keep), len(p.heads))
	}
	for i, idx := range keep {
		if err := CheckAscending(idx, len(p.heads[i].pos)); err != nil {
			return fmt.Errorf("%s layer %d head %d: %w", what, layer, i, err)
		}
	}
	return nil
}

func (p *pairs) mark() {
	for i := range p.heads {
		if h := &p.heads[i]; h.k != nil && p.c.dtype.Grouped() {
			h.k.MarkRows()
			h.v.MarkRows()
		}
	}
}

func (p *pairs) truncate(next int32) {
	p.settle()
	for i := range p.heads {
		h := &p.heads[i]
		n, _ := slices.BinarySearch(h.pos, next)
		h.shorten(n)
		if h.bias != nil && n < h.bias.Len() {
			h.bias = p.keptBiases(h.bias, Positions(0, n))
		}
		if h.k != nil && p.c.dtype.Grouped() {
			h.k.CutRows(n)
			h.v.CutRows(n)
		}
		if h.capacity() > p.grown(n) {
			p.resize(h, n)
		}
	}
}

func (p *pairs) fork(to *Cache, room *cacheRoom, keep [][]int32, more int) layer {
	return p.forkPairs(to, room, keep, more)
}

func (p *pairs) forkPairs(to *Cache, room *cacheRoom, keep [][]int32, more int) *pairs {
	p.settle()
	out := &pairs{c: to, room: room, dim: p.dim, heads: make([]headCache, len(p.heads))}
	for i := range p.heads {
		from, h := &p.heads[i], &out.heads[i]
		n := len(from.pos)
		if keep != nil {
			n = len(keep[i])
		}
		h.k, h.v = room.on.Alloc(to.dtype, n+more, p.dim), room.on.Alloc(to.dtype.OfValues(), n+more, p.dim)
		if keep == nil {
			if n > 0 {
				room.on.Copy(h.k.Rows(0, n), from.k.Rows(0, n))
				room.on.Copy(h.v.Rows(0, n), from.v.Rows(0, n))
			}
			h.pos = append(make([]int32, 0, n+more), from.pos...)
			h.bias = p.keptBiases(from.bias, Positions(0, n))
			continue
		}
		h.bias = p.keptBiases(from.bias, keep[i])
		h.pos = make([]int32, n)
		for at, j := range keep[i] {
			h.pos[at] = from.pos[j]
		}
		if n > 0 {
			room.on.Gather(h.k, from.k, keep[i])
			room.on.Gather(h.v, from.v, keep[i])
		}
	}
	return out
}

func (p *pairs) bytes() (n int64) {
	for i := range p.heads {
		if h := &p.heads[i]; h.k != nil {
			n += int64(h.k.Bytes() + h.v.Bytes())
		}
		if bias := p.heads[i].bias; bias != nil {
			n += int64(bias.Bytes())
		}
	}
	return n
}

// pairBytes is the memory of one entry of one head.
func (p *pairs) pairBytes() int64 { return 2 * int64(p.c.dtype.Bytes(p.dim)) }

// entryBytes is the memory of n entries, where some are not in groups.
func (p *pairs) entryBytes(n, recent int) int64 {
	return int64(n-recent)*p.pairBytes() + int64(recent)*2*int64(kernels.BF16.Bytes(p.dim))
}

// recent is how many of the newest entries of a head are not in groups; 0 where nothing is.
func (p *pairs) recent(head int) int {
	if h := &p.heads[head]; h.k != nil && p.c.dtype.Grouped() {
		return h.k.RecentRows()
	}
	return 0
}
