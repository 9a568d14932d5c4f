package kvcache

import "glimpse/kernels"

// A layer with a sliding window holds what its next row sees and no more, but for less than a block of entries
// (kernels.WindowBlock): the rest is freed as the window moves on, in a prompt chunk by chunk.

// WindowEntries is what a layer with a window holds of so many tokens.
func WindowEntries(tokens, window int) int { return tokens - gone(max(0, tokens-window+1)) }

// gone are the pairs of so many entries before a window that are freed.
func gone(before int) int { return before / kernels.WindowBlock * kernels.WindowBlock }

// HoldWindows makes an empty cache hold everything in layers with a window, too: for those who choose among it.
func (c *Cache) HoldWindows() { c.whole = true }

// HoldWindow makes a layer hold everything until FitWindow.
func (c *Cache) HoldWindow(layer int) { c.held[layer] = true }

// slides tells that a layer holds its window alone.
func (c *Cache) slides(layer int) bool { return c.windows[layer] > 0 && !c.whole && !c.held[layer] }

// slide drops what a row at position next of a layer, and all after it, do not see.
func (c *Cache) slide(layer int, next int32) {
	if !c.slides(layer) {
		return
	}
	if c.back >= 0 {
		next = min(next, c.back)
	}
	on := c.On(layer)
	for i := range c.heads[layer] {
		h := &c.heads[layer][i]
		gone := gone(FirstSeen(h.pos, next, c.windows[layer]))
		if gone == 0 {
			continue
		}
		n, stay := len(h.pos)-gone, Positions(int32(gone), len(h.pos)-gone)
		on.Gather(h.k.Rows(0, n), h.k, stay)
		on.Gather(h.v.Rows(0, n), h.v, stay)
		c.freed[layer] = max(c.freed[layer], h.pos[gone-1]+1)
		copy(h.pos, h.pos[gone:])
		h.shorten(n)
		c.changed()
	}
}

// FitWindow ends a prompt in a layer that holds its window alone, after which the next row is at position next: the memory
// that its chunks have needed is freed.
func (c *Cache) FitWindow(layer int, next int32) {
	c.held[layer] = false
	c.slide(layer, next)
	if !c.slides(layer) {
		return
	}
	for i := range c.heads[layer] {
		if h := &c.heads[layer][i]; h.capacity() > c.grown(layer, len(h.pos)) {
			k, v := h.k, h.v
			c.resize(layer, h, len(h.pos))
			c.keepSpare(layer, k)
			c.keepSpare(layer, v)
		}
	}
}

// Undoable makes windows keep, from now on until Truncate, what they hold, pairs in groups be there as they are now, and marks the
// states of recurrent layers: decoding can be undone.
func (c *Cache) Undoable() {
	c.back = c.next
	c.states.marked = nil
	if c.recurrent() {
		c.states.marked = c.copyStates(c.states.now)
	}
	for l := range c.heads {
		for i := range c.heads[l] {
			if h := &c.heads[l][i]; h.k != nil && c.dtype.Grouped() {
				h.k.MarkRows()
				h.v.MarkRows()
			}
		}
	}
}

// Rewindable tells whether Truncate can go back to a position, at which no window has lost an entry and whose states are there.
func (c *Cache) Rewindable(next int32) bool {
	if c.recurrent() && next != 0 && next != c.next && (c.states.marked == nil || next != c.back) {
		return false
	}
	for l, freed := range c.freed {
		if freed > 0 && next-int32(c.windows[l])+1 < freed {
			return false
		}
	}
	return true
}
