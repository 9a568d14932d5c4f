package main

import (
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
)

// randomCache is a cache of random keys and values: every head holds so many entries, at the last positions before next, and has room
// for more.
func randomCache(m *model.Model, next, entries, room int) (_ *kvcache.Cache, err error) {
	defer kernels.CatchDevice(&err)
	c := kvcache.New(m)
	c.Begin(next)
	for l := range c.Layers() {
		if !m.Config.HoldsKV(l) {
			continue
		}
		on, kv := m.On(l), m.Config.KV(l)
		k := on.Alloc(on.Compute(), max(1, entries), kv.Heads, kv.Dim)
		kernels.Convert(k, modeltest.RandomTensor(kernels.F32, 1, k.Shape...))
		c.ReserveLayer(l, entries+room, 1)
		c.Append(l, k.Rows(0, entries), k.Rows(0, entries), kvcache.Positions(int32(next-entries), entries))
	}
	c.Advance(next)
	return c, nil
}
