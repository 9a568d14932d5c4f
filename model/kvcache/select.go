package kvcache

import (
	"fmt"
	"slices"

	"glimpse/kernels"
)

// composed are the positions of the entries that s selects in layers, from the first one on. The first
// entries of these have the positions before; later ones follow each other.
func (c *Cache) composed(first int, before, s *kernels.Selection) *kernels.Selection {
	if !before.OnDevice() && !slices.ContainsFunc(before.Indices(), func(pos []int32) bool { return len(pos) > 0 && int(pos[len(pos)-1]) >= len(pos) }) {
		return s // of a prompt that is whole
	}
	kvHeads, base := c.KVHeads(), make([]int, s.Heads())
	for i := range base {
		h := &c.heads[first+i/kvHeads][i%kvHeads]
		if n := before.Len(i); n < len(h.pos) {
			base[i] = int(h.pos[n])
		}
	}
	return c.On(first).Selector().Compose(before, s, base)
}

// positionsOf are the positions of a layer's first entries.
func (c *Cache) positionsOf(layer int) *kernels.Selection {
	if p := c.onDevice[layer]; p != nil {
		return p
	}
	var pos [][]int32
	for i := range c.heads[layer] {
		pos = append(pos, c.heads[layer][i].pos)
	}
	return kernels.HostSelection(pos)
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
	positions := c.composed(layer, c.positionsOf(layer), s)
	var from, to []kernels.KV
	var anew, whole []bool
	for i := range heads {
		h, n := &heads[i], s.Len(i)
		whole = append(whole, n == len(h.pos))
		anew = append(anew, h.capacity() > c.grown(layer, n)) // worth new memory; otherwise compact in place
		from = append(from, kernels.KV{K: h.k, V: h.v})
		if anew[i] {
			h.k, h.v = c.allocLayer(layer, n)
		}
		to = append(to, kernels.KV{K: h.k, V: h.v})
	}
	if slices.Contains(whole, false) || slices.Contains(anew, true) {
		device.Compact(to, from, s)
	}
	for i := range heads {
		if anew[i] {
			c.keepSpare(layer, from[i].K)
			c.keepSpare(layer, from[i].V)
		}
		heads[i].shorten(s.Len(i)) // the values come with settle
	}
	c.onDevice[layer], c.joint = positions, nil
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
// than to run. A selection on a device is for caches whose layers it holds all.
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
		if err := c.selectPositions(device, s); err != nil {
			return err
		}
	}
	var from, to []kernels.KV // of the entries that move
	var indices [][]int32     // of it, from the host
	var bytes int64
	first := 0 // head of the entries that move, on the device
	flush := func(next int) {
		switch {
		case len(to) == 0:
		case s.OnDevice():
			device.Compact(to, from, s.HeadRange(first, next))
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
				h.k, h.v = c.allocLayer(l, n)
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

// selectPositions keeps the positions of the entries that a selection of all layers leaves, in one operation
// where they lie together.
func (c *Cache) selectPositions(device kernels.Selector, s *kernels.Selection) error {
	kvHeads := c.KVHeads()
	for i := range s.Heads() {
		if h := &c.heads[i/kvHeads][i%kvHeads]; s.Len(i) > len(h.pos) {
			return fmt.Errorf("retain layer %d head %d: %d entries of %d", i/kvHeads, i%kvHeads, s.Len(i), len(h.pos))
		}
	}
	before := c.joint
	if before == nil {
		var parts []*kernels.Selection
		for l := range c.heads {
			parts = append(parts, c.positionsOf(l))
		}
		before = kernels.JoinSelections(device, parts)
	}
	if before != nil {
		c.joint = c.composed(0, before, s)
	}
	for l := range c.heads {
		if from, to := l*kvHeads, (l+1)*kvHeads; c.joint != nil {
			c.onDevice[l] = c.joint.HeadRange(from, to)
		} else {
			c.onDevice[l] = c.composed(l, c.positionsOf(l), s.HeadRange(from, to))
		}
	}
	return nil
}

// settle reads the positions that only the device knows.
func (c *Cache) settle(layer int) {
	p := c.onDevice[layer]
	if p == nil {
		return
	}
	c.onDevice[layer], c.joint = nil, nil
	for i, pos := range p.Indices() {
		copy(c.heads[layer][i].pos, pos)
	}
}

// Settle reads the positions that evictions on a device have left there.
func (c *Cache) Settle() (err error) {
	defer kernels.CatchDevice(&err)
	for l := range c.heads {
		c.settle(l)
	}
	return nil
}
