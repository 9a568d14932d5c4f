package kvcache

import "glimpse/kernels"

// windowed is a layer with a sliding window. It holds what its next row sees and no more, but for less than a block of entries
// (kernels.WindowBlock): the rest is freed as the window moves on, in a prompt chunk by chunk.
type windowed struct {
	*pairs
	window int
	freed  int32 // the position after the last one that has left the window and is gone
	whole  bool  // it holds everything, see HoldWindow
}

// WindowEntries is what a layer with a window holds of so many tokens.
func WindowEntries(tokens, window int) int { return tokens - gone(max(0, tokens-window+1)) }

// gone are the pairs of so many entries before a window that are freed.
func gone(before int) int { return before / kernels.WindowBlock * kernels.WindowBlock }

// slides tells that the layer holds its window alone.
func (w *windowed) slides() bool { return !w.c.whole && !w.whole }

func (w *windowed) reserveEntries(n, together int) {
	if !w.slides() {
		w.pairs.reserveEntries(n, together)
		return
	}
	w.reserveUpTo(n, w.window-1+kernels.WindowBlock-1+together)
}

func (w *windowed) slide(next int32, ended bool) {
	if !w.slides() {
		return
	}
	if w.c.back >= 0 {
		next = min(next, w.c.back)
	}
	on := w.room.on
	for i := range w.heads {
		h := &w.heads[i]
		if gone := gone(FirstSeen(h.pos, next, w.window)); gone > 0 {
			n, stay := len(h.pos)-gone, Positions(int32(gone), len(h.pos)-gone)
			on.Gather(h.k.Rows(0, n), h.k, stay)
			on.Gather(h.v.Rows(0, n), h.v, stay)
			w.freed = max(w.freed, h.pos[gone-1]+1)
			copy(h.pos, h.pos[gone:])
			h.shorten(n)
			w.c.changed()
		}
		if ended && h.capacity() > w.grown(len(h.pos)) {
			k, v := h.k, h.v
			w.resize(h, len(h.pos))
			w.keepSpare(k, v)
		}
	}
}

func (w *windowed) rewindable(next int32) bool {
	return w.freed == 0 || next-int32(w.window)+1 >= w.freed
}

func (w *windowed) fork(to *Cache, room *cacheRoom, keep [][]int32, more int) layer {
	return &windowed{pairs: w.forkPairs(to, room, keep, more), window: w.window, freed: w.freed}
}

// HoldWindows makes an empty cache hold everything in layers with a window, too: for those who choose among it.
func (c *Cache) HoldWindows() { c.whole = true }

// HoldsWindows tells that HoldWindows was called.
func (c *Cache) HoldsWindows() bool { return c.whole }

// HoldWindow makes a layer hold everything until FitWindow.
func (c *Cache) HoldWindow(layer int) {
	if w, ok := c.layers[layer].(*windowed); ok {
		w.whole = true
	}
}

// FitWindow ends a prompt in a layer, after which the next row is at position next: of a window the rest is freed, and the memory
// that its chunks have needed.
func (c *Cache) FitWindow(layer int, next int32) {
	if w, ok := c.layers[layer].(*windowed); ok {
		w.whole = false
		w.slide(next, true)
	}
}
