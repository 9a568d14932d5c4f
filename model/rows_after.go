package model

import "glimpse/kernels"

// RowsAfter places rows after a prompt of next tokens: their positions, and the
// tables that rotate them, by layer.
func (m *Model) RowsAfter(next int32, rows int) ([]int32, []*kernels.RoPETable) {
	return m.rowsAfter(next, rows, m.Config.long(int(next)))
}

// RowsAfterCache places rows after a cache as it is.
func (m *Model) RowsAfterCache(c *Cache, rows int) ([]int32, []*kernels.RoPETable) {
	return m.rowsAfter(c.next, rows, c.long)
}

func (m *Model) rowsAfter(next int32, rows int, long bool) ([]int32, []*kernels.RoPETable) {
	pos := positions(next, rows)
	tables := make([]*kernels.RoPETable, m.Config.Layers)
	for l := range tables {
		tables[l] = m.rope(m.On(l), pos, long)
	}
	return pos, tables
}

// Views are the keys and values of all layers, [layer][kvHead].
func (c *Cache) Views() [][]kernels.KV {
	out := make([][]kernels.KV, c.Layers())
	for l := range out {
		out[l] = c.View(l)
	}
	return out
}
