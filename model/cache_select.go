package model

import (
	"fmt"
	"slices"

	"glimpse/kernels"
)

// pendingLayer is what the host knows of a layer's positions after evictions on the
// device: every entry of head h is one of known[h], the device knows which.
type pendingLayer struct {
	known  [][]int32
	origin *kernels.Selection // entries as indices of known, in the order of the cache
}

// RetainSelection is Retain of a selection, whose indices stay where they are: on a
// device the host learns only how many entries there are, and positions when they are
// asked for.
func (c *Cache) RetainSelection(layer int, s *kernels.Selection) (err error) {
	device, ok := c.backend.(kernels.Selector)
	if !ok || !s.OnDevice() {
		return c.Retain(layer, s.Indices())
	}
	defer kernels.CatchDevice(&err)
	c.changed()
	heads := c.heads[layer]
	if s.Heads() != len(heads) {
		return fmt.Errorf("retain layer %d: a selection of %d KV heads, want %d", layer, s.Heads(), len(heads))
	}
	for i := range heads {
		if s.Len(i) > len(heads[i].pos) {
			return fmt.Errorf("retain layer %d head %d: %d entries of %d", layer, i, s.Len(i), len(heads[i].pos))
		}
	}
	p := c.pending[layer]
	if p == nil {
		p = &pendingLayer{known: make([][]int32, len(heads)), origin: s}
		for i := range heads {
			p.known[i] = slices.Clone(heads[i].pos)
		}
	} else {
		base := make([]int, len(heads))
		for i := range heads {
			base[i] = len(p.known[i])
			p.known[i] = append(p.known[i], heads[i].pos[p.origin.Len(i):]...)
		}
		p = &pendingLayer{known: p.known, origin: device.Compose(p.origin, s, base)}
	}
	var from, to []kernels.KV
	var anew, whole []bool
	for i := range heads {
		h, n := &heads[i], s.Len(i)
		whole = append(whole, n == len(h.pos))
		anew = append(anew, h.capacity() > n+growEntries) // worth new memory; otherwise compact in place
		from = append(from, kernels.KV{K: h.k, V: h.v})
		if anew[i] {
			h.k, h.v = c.alloc(n), c.alloc(n)
		}
		to = append(to, kernels.KV{K: h.k, V: h.v})
	}
	if slices.Contains(whole, false) || slices.Contains(anew, true) {
		device.Compact(to, from, s)
	}
	for i := range heads {
		if anew[i] {
			c.free(from[i].K)
			c.free(from[i].V)
		}
		heads[i].shorten(s.Len(i)) // the values come with settle
	}
	c.pending[layer] = p
	if c.windows[layer] > 0 { // the next attention reads them
		c.settle(layer)
	}
	return nil
}

// settle reads the positions that only the device knows.
func (c *Cache) settle(layer int) {
	p := c.pending[layer]
	if p == nil {
		return
	}
	c.pending[layer] = nil
	for i, origin := range p.origin.Indices() {
		pos := c.heads[layer][i].pos
		for j, at := range origin {
			pos[j] = p.known[i][at]
		}
	}
}

// Settle reads the positions that evictions on a device have left there, after which
// the host no longer needs those of what was evicted: for a cache that is kept for long.
func (c *Cache) Settle() (err error) {
	defer kernels.CatchDevice(&err)
	for l := range c.heads {
		c.settle(l)
	}
	return nil
}
