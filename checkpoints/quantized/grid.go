package quantized

import "slices"

// gridMatrix is a matrix whose rows are codes, with scales and perhaps zero points in a grid: the tensors that Make gets are these three.
type gridMatrix struct {
	rows, cols int
	rowCodes
	grid
	codes         string  // of blocks
	scaleType     string  // as it is stored
	product       string  // the type in which codes are scaled
	zeros, packed bool    // there are zero points, packed along columns
	middle        float32 // which codes and packed zero points are stored above
}

// showGrid shows the module's weight in blocks where it can be in them.
func (m *module) showGrid(c *gridMatrix) {
	columns, order := c.blockOrder()
	if m.keepBlocks(c.rows, c.cols, c.codes, c.product, columns, order, func(of [][]byte) func(b *block, row, col int) {
		return c.fillBlock(of, order)
	}) {
		return
	}
	m.show(c.rows, c.cols, func(dst []byte, of [][]byte) {
		codes, grid := c.read(of)
		widenRows(dst, c.rows, c.cols, codes, &grid, c.product)
	})
}

// read gives the codes and the grid of the bytes of the tensors.
func (c *gridMatrix) read(of [][]byte) (rowCodes, grid) {
	codes, grid := c.rowCodes, c.grid
	codes.data, grid.scale = of[0], readFloats(of[1], c.scaleType)
	switch {
	case c.packed:
		grid.zero = unpackRows(of[2], c.rows, grid.width, codes.bits)
	case c.zeros || c.middle > 0:
		grid.zero = slices.Repeat([]float32{c.middle}, len(grid.scale))
		if c.zeros {
			for i, z := range integers(of[2], "I8") {
				grid.zero[i] += float32(z)
			}
		}
	}
	return codes, grid
}

// blockOrder is how many columns that follow each other share a scale, in an order of columns or in their own; 0 where
// they cannot be in blocks.
func (c *gridMatrix) blockOrder() (columns int, order []int32) {
	switch {
	case c.codes == "E4M3" && c.zeros:
		return 0, nil
	case c.group == nil:
		return c.blockCols, nil
	}
	if order, ok := inGroups(c.group); ok {
		return blockCols, order
	}
	return 0, nil
}

// fillBlock gives the blocks of codes, whose columns follow an order.
func (c *gridMatrix) fillBlock(of [][]byte, order []int32) func(b *block, row, col int) {
	codes, grid := c.read(of)
	return func(b *block, row, col int) {
		codes.blockCodes(&b.codes, row, col, order)
		group := col / grid.blockCols
		if order != nil {
			group = grid.group[order[col]]
		}
		var zero float32
		switch b.scale, zero = grid.scaleAt(row, group); c.codes {
		case "E4M3":
		case "I4":
			b.zero = byte(zero)
		default:
			b.zero = byte(int(zero - c.middle))
			for i := range b.codes {
				b.codes[i] -= byte(c.middle)
			}
		}
	}
}
