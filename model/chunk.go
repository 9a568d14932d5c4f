package model

import "cmp"

// defaultChunk is the number of prompt rows that go through a layer at once where the
// backend has no opinion: it bounds the memory of activations and is past the point where
// a processor's matrix products get any faster.
const defaultChunk = 512

// ChunkRows is the number of prompt rows that go through a layer at once.
func (m *Model) ChunkRows() int {
	return cmp.Or(m.Backend.Traits().PrefillChunk(m.RowBytes()), defaultChunk)
}

// RowBytes is the memory that a row takes while it is in a layer: queries, keys, values
// and outputs of attention, what is added to the residual stream, the rows through both
// norms, and the MLP or one expert, through which at most all rows go.
func (m *Model) RowBytes() int64 {
	c := &m.Config
	attention := 0
	for l := range c.Layers {
		kv := c.KV(l)
		attention = max(attention, (c.Heads+kv.Heads)*kv.Dim)
	}
	// The inputs of a recurrent layer are in the place of queries, keys and values.
	width := c.recurrentWidth() + 2*attention + 4*c.Hidden + 3*max(c.Intermediate, c.ExpertWidth)
	if c.ExpertWidth > 0 { // the rows of an expert, and what it gives
		width += 2 * c.Hidden
	}
	return int64(width) * int64(m.Backend.Compute().Size())
}
