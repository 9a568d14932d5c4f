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
	if !s.OnDevice() {
		return c.Retain(layer, s.Indices())
	}
	device := c.On(layer).Selector()
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
		anew = append(anew, h.capacity() > c.grown(layer, n)) // worth new memory; otherwise compact in place
		from = append(from, kernels.KV{K: h.k, V: h.v})
		if anew[i] {
			h.k, h.v = c.alloc(layer, n), c.alloc(layer, n)
		}
		to = append(to, kernels.KV{K: h.k, V: h.v})
	}
	if slices.Contains(whole, false) || slices.Contains(anew, true) {
		device.Compact(to, from, s)
	}
	for i := range heads {
		if anew[i] {
			c.free(layer, from[i].K)
			c.free(layer, from[i].V)
		}
		heads[i].shorten(s.Len(i)) // the values come with settle
	}
	c.pending[layer] = p
	if c.windows[layer] > 0 { // the next attention reads them
		c.settle(layer)
	}
	return nil
}

// CompactBytes is how much is moved at a time where entries of many layers go, and one
// layer: they are first copied elsewhere.
const CompactBytes = 64 << 20

// RetainAll is RetainSelection of all layers at once, of the KV heads of all of them: for
// decoding steps on a device, where the operations of a few entries take longer to start
// than to run. A selection on a device is for caches of which it holds all layers.
func (c *Cache) RetainAll(s *kernels.Selection) (err error) {
	device := c.On(0).Selector()
	layers, kvHeads := len(c.heads), c.KVHeads()
	if s.Heads() != layers*kvHeads {
		return fmt.Errorf("retain: a selection of %d KV heads, want %d of %d layers", s.Heads(), kvHeads, layers)
	}
	defer kernels.CatchDevice(&err)
	if !s.OnDevice() {
		all := s.Indices()
		for l := range c.heads {
			if err := c.checkKept(l, all[l*kvHeads:(l+1)*kvHeads]); err != nil {
				return err
			}
		}
		if !device.OwnMemory() || c.rooms[0] != c.rooms[layers-1] {
			for l := range c.heads {
				if err := c.Retain(l, all[l*kvHeads:(l+1)*kvHeads]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	c.changed()
	if s.OnDevice() {
		if err := c.originAll(device, s); err != nil {
			return err
		}
	}
	var from, to []kernels.KV // of what is moved
	var indices [][]int32     // of it, from the host
	var bytes int64
	first := 0 // head of what is moved, on the device
	flush := func(next int) {
		switch {
		case len(to) == 0:
		case s.OnDevice():
			device.Compact(to, from, s.Of(first, next))
		default:
			device.Compact(to, from, kernels.HostSelection(indices))
		}
		from, to, indices, bytes, first = nil, nil, nil, 0, next
	}
	for l := range c.heads {
		if !s.OnDevice() {
			c.settle(l)
		}
		for i := range c.heads[l] {
			h, at := &c.heads[l][i], l*kvHeads+i
			n := s.Len(at)
			anew := h.capacity() > c.grown(l, n)
			if n == len(h.pos) && !anew && !s.OnDevice() {
				continue
			}
			from, bytes = append(from, kernels.KV{K: h.k, V: h.v}), bytes+int64(n)*c.PairBytes()
			if anew {
				h.k, h.v = c.alloc(l, n), c.alloc(l, n)
			}
			to = append(to, kernels.KV{K: h.k, V: h.v})
			if !s.OnDevice() {
				indices = append(indices, s.Indices()[at])
				for j, index := range s.Indices()[at] {
					h.pos[j] = h.pos[index]
				}
			}
			h.shorten(n) // of a selection on the device the values come with settle
		}
		if bytes > CompactBytes {
			flush((l + 1) * kvHeads)
		}
	}
	flush(layers * kvHeads)
	for l, w := range c.windows {
		if w > 0 {
			c.settle(l)
		}
	}
	return nil
}

// originAll notes in every layer which positions a selection of all layers leaves.
func (c *Cache) originAll(device kernels.Selector, s *kernels.Selection) error {
	kvHeads := c.KVHeads()
	for l, heads := range c.heads {
		for i := range heads {
			if n := s.Len(l*kvHeads + i); n > len(heads[i].pos) {
				return fmt.Errorf("retain layer %d head %d: %d entries of %d", l, i, n, len(heads[i].pos))
			}
		}
	}
	of := func(s *kernels.Selection) (layers []*kernels.Selection) {
		for l := range c.heads {
			layers = append(layers, s.Of(l*kvHeads, (l+1)*kvHeads))
		}
		return layers
	}
	var before []*kernels.Selection // as the layers hold them
	fresh := true
	for _, p := range c.pending {
		if p != nil {
			before, fresh = append(before, p.origin), false
		}
	}
	if !fresh && len(before) == len(c.heads) && !slices.Equal(before, c.origins) {
		c.joint = kernels.JoinSelections(device, before)
	}
	joint := !fresh && len(before) == len(c.heads) && c.joint != nil
	base := make([]int, 0, s.Heads())
	origins := of(s)
	for l, heads := range c.heads {
		p := c.pending[l]
		if p == nil {
			p = &pendingLayer{known: make([][]int32, len(heads)), origin: origins[l]}
			for i := range heads {
				p.known[i] = slices.Clone(heads[i].pos)
			}
			c.pending[l] = p
			continue
		}
		for i := range heads {
			base = append(base, len(p.known[i]))
			p.known[i] = append(p.known[i], heads[i].pos[p.origin.Len(i):]...)
		}
		if !joint {
			c.pending[l] = &pendingLayer{p.known, device.Compose(p.origin, origins[l], base[len(base)-kvHeads:])}
		}
	}
	switch {
	case joint:
		s = device.Compose(c.joint, s, base)
		origins = of(s)
		for l, p := range c.pending {
			c.pending[l] = &pendingLayer{p.known, origins[l]}
		}
	case !fresh:
		s, origins = nil, nil
	}
	c.joint, c.origins = s, origins
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
