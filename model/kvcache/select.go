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
		h := &c.pairs(first + i/kvHeads).heads[i%kvHeads]
		if n := before.Len(i); n < len(h.pos) {
			base[i] = int(h.pos[n])
		}
	}
	return c.On(first).Selector().Compose(before, s, base)
}

// positions are those of the first entries.
func (p *pairs) positions() *kernels.Selection {
	if p.onDevice != nil {
		return p.onDevice
	}
	var pos [][]int32
	for i := range p.heads {
		pos = append(pos, p.heads[i].pos)
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
	p := c.pairs(layer)
	defer kernels.CatchDevice(&err)
	c.changed()
	if s.Heads() != len(p.heads) {
		return fmt.Errorf("retain layer %d: a selection of %d KV heads, want %d", layer, s.Heads(), len(p.heads))
	}
	for i := range p.heads {
		if n := len(p.heads[i].pos); s.Len(i) > n {
			return fmt.Errorf("retain layer %d head %d: %d entries of %d", layer, i, s.Len(i), n)
		}
	}
	p.onDevice, c.joint = c.composed(layer, p.positions(), s), nil
	c.compactLayers(layer, layer+1, s)
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
	layers, kvHeads := len(c.layers), c.KVHeads()
	if s.Heads() != layers*kvHeads {
		return fmt.Errorf("retain: a selection of %d KV heads, want %d of %d layers", s.Heads(), kvHeads, layers)
	}
	defer kernels.CatchDevice(&err)
	if !s.OnDevice() {
		all := s.Indices()
		for l := range c.layers {
			if err := c.pairs(l).checkKept("retain", l, all[l*kvHeads:(l+1)*kvHeads]); err != nil {
				return err
			}
		}
		if !device.OwnMemory() || c.pairs(0).room != c.pairs(layers-1).room {
			for l := range c.layers {
				c.pairs(l).retain(all[l*kvHeads : (l+1)*kvHeads])
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
	c.compactLayers(0, layers, s)
	return nil
}

// compactLayers moves the entries that a selection of some layers' KV heads leaves, on the layers' device, those of many layers at a
// time. Positions on the device are known already.
func (c *Cache) compactLayers(first, end int, s *kernels.Selection) {
	device := c.On(first).Selector()
	var from, to []kernels.KV // of the heads from the first one on, or of those whose entries move where the host selects
	var indices [][]int32     // of it, from the host
	var freed []*kernels.Tensor
	var bytes int64
	head, at, moves := 0, 0, false
	flush := func() {
		switch {
		case !moves:
		case s.OnDevice():
			device.Compact(to, from, s.HeadRange(head, at))
		default:
			device.Compact(to, from, kernels.HostSelection(indices))
		}
		c.pairs(first).keepSpare(freed...)
		from, to, indices, freed, bytes, head, moves = nil, nil, nil, nil, 0, at, false
	}
	for l := first; l < end; l++ {
		p := c.pairs(l)
		if !s.OnDevice() {
			p.settle()
		}
		for i := range p.heads {
			h, n := &p.heads[i], s.Len(at)
			anew := h.capacity() > p.grown(n) // worth new memory; otherwise compact in place
			if moved := n < len(h.pos) || anew; moved || s.OnDevice() {
				from, bytes, moves = append(from, kernels.KV{K: h.k, V: h.v}), bytes+int64(n)*p.pairBytes(), moves || moved
				if anew {
					freed = append(freed, h.k, h.v)
					h.k, h.v = p.alloc(n)
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
			at++
		}
		if bytes > CompactBytes {
			flush()
		}
	}
	flush()
	for l := first; l < end; l++ {
		if w, ok := c.layers[l].(*windowed); ok { // the next attention reads them
			w.settle()
		}
	}
}

// selectPositions keeps the positions of the entries that a selection of all layers leaves, in one operation
// where they lie together.
func (c *Cache) selectPositions(device kernels.Selector, s *kernels.Selection) error {
	kvHeads := c.KVHeads()
	for i := range s.Heads() {
		if h := &c.pairs(i / kvHeads).heads[i%kvHeads]; s.Len(i) > len(h.pos) {
			return fmt.Errorf("retain layer %d head %d: %d entries of %d", i/kvHeads, i%kvHeads, s.Len(i), len(h.pos))
		}
	}
	before := c.joint
	if before == nil {
		var parts []*kernels.Selection
		for l := range c.layers {
			parts = append(parts, c.pairs(l).positions())
		}
		before = kernels.JoinSelections(device, parts)
	}
	if before != nil {
		c.joint = c.composed(0, before, s)
	}
	for l := range c.layers {
		p := c.pairs(l)
		if from, to := l*kvHeads, (l+1)*kvHeads; c.joint != nil {
			p.onDevice = c.joint.HeadRange(from, to)
		} else {
			p.onDevice = c.composed(l, p.positions(), s.HeadRange(from, to))
		}
	}
	return nil
}

// settle reads the positions that only the device knows.
func (p *pairs) settle() {
	on := p.onDevice
	if on == nil {
		return
	}
	p.onDevice, p.c.joint = nil, nil
	for i, pos := range on.Indices() {
		copy(p.heads[i].pos, pos)
	}
}

// Settle reads the positions that evictions on a device have left there.
func (c *Cache) Settle() (err error) {
	defer kernels.CatchDevice(&err)
	for l := range c.layers {
		c.pairs(l).settle()
	}
	return nil
}
