package kvcache

import (
	"glimpse/kernels"
	"glimpse/model"
)

// Random is a cache of random keys and values for measurements of decoding: every
// head holds so many entries, at the last positions before next, and has room for
// more.
func Random(m *model.Model, next, entries, room int) (_ *Cache, err error) {
	defer kernels.CatchDevice(&err)
	c := New(m)
	c.next, c.long = int32(next), m.Config.Long(next)
	var k, v *kernels.Tensor
	for l := range c.layers {
		p := c.pairs(l)
		if !c.attends(l) {
			c.State(l)
			continue
		}
		if k == nil || p.room != c.pairs(l-1).room {
			k, v = p.alloc(max(1, entries))
			kernels.Convert(k, model.RandomTensor(kernels.F32, 1, k.Shape...))
			kernels.Convert(v, model.RandomTensor(kernels.F32, 1, v.Shape...))
		}
		for i := range p.heads {
			h := &p.heads[i]
			h.k, h.v = p.alloc(entries + room)
			if entries > 0 {
				c.On(l).Copy(h.k.Rows(0, entries), k)
				c.On(l).Copy(h.v.Rows(0, entries), v)
			}
			h.pos = append(make([]int32, 0, entries+room), Positions(int32(next-entries), entries)...)
		}
	}
	return c, nil
}
