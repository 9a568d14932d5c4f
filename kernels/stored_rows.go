package kernels

import (
	"encoding/binary"
	"fmt"
)

// StoredRows are the bytes of a host tensor's rows, for a file: its memory, little-endian; of rows in groups the number of groups, where
// each ends (both uint32), their blocks and then the rows behind them.
func (t *Tensor) StoredRows() []byte {
	if t.groups == nil {
		return t.Memory()
	}
	g := t.groups
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(g.ends)))
	for _, end := range g.ends {
		out = binary.LittleEndian.AppendUint32(out, uint32(end))
	}
	out = append(out, g.blocks...)
	for _, x := range g.recent {
		out = binary.LittleEndian.AppendUint16(out, x)
	}
	return out
}

// SetStoredRows gives a host tensor that was made with all its rows those that StoredRows has told of one of the same type and shape.
func (t *Tensor) SetStoredRows(stored []byte) error {
	wrong := fmt.Errorf("got %d bytes, which are no %s tensor %v", len(stored), t.DType, t.Shape)
	if t.groups == nil {
		if len(stored) != t.Bytes() {
			return wrong
		}
		copy(t.Memory(), stored)
		return nil
	}
	words := func(n int) (out []int) {
		for range n {
			out = append(out, int(binary.LittleEndian.Uint32(stored)))
			stored = stored[4:]
		}
		return out
	}
	if len(stored) < 4 {
		return wrong
	}
	n := words(1)[0]
	g := newGroups(t.DType, t.Dim0(), t.Width())
	if n > t.Dim0() || len(stored) < n*(4+groupBytes(g.dim)) {
		return wrong
	}
	g.ends = words(n)
	for i, end := range g.ends {
		if end <= g.groupStart(i) || end > g.groupStart(i)+groupRows {
			return wrong
		}
	}
	size := n * groupBytes(g.dim)
	g.blocks = append(make([]byte, 0, size), stored[:size]...)
	rest := stored[size:]
	if len(rest) != 2*g.dim*(t.Dim0()-g.closedRows()) || len(rest) > 2*g.dim*MostRecent {
		return wrong
	}
	for g.recent = make([]uint16, 0, len(rest)/2); len(rest) > 0; rest = rest[2:] {
		g.recent = append(g.recent, binary.LittleEndian.Uint16(rest))
	}
	*t.groups = *g
	return nil
}
