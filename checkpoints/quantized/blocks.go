package quantized

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"glimpse/checkpoints"
	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

// Where each 32 columns share a scale of a type that a format of package formats has, and the processor has kernels for it, a
// matrix stays in few bits: its codes are put in blocks behind copies of their scale, which widen to the bits that the matrix
// is widened to otherwise. Columns of a group need not follow each other: they do in the blocks, and the matrix has an order
// (checkpoints.TensorView).

// blockCols are the columns of a block.
const blockCols = 32

// block is what is stored of 32 columns of a row.
type block struct {
	scale float32
	zero  byte
	codes [blockCols]byte
}

// typeOf is the type in which a matrix stays, BF16 where it is widened.
func typeOf(codes, scale string, cols, group int) kernels.DType {
	if cols%blockCols != 0 || group == 0 || group < cols && group%blockCols != 0 {
		return kernels.BF16
	}
	return checkpoints.Kept(codes + "_" + scale)
}

// inGroups is the order of columns that brings each group together, nil where the columns' own does; false where
// some 32 of them are of two groups.
func inGroups(group []int) (order []int32, ok bool) {
	order = make([]int32, len(group))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(group[a], group[b]) })
	for i, column := range order {
		if group[column] != group[order[i/blockCols*blockCols]] {
			return nil, false
		}
	}
	if slices.IsSorted(order) {
		order = nil
	}
	return order, true
}

// keepBlocks shows the module's weight in blocks of codes "E4M3", "I4", "I8" or "I8Z": fill gets the bytes and gives the
// block of a row that begins at a column; false where they cannot be blocks. Columns that share a scale are so many,
// and 0 where they do not follow each other. The columns that fill gives follow the order, if there is one.
func (m *module) keepBlocks(rows, cols int, codes, scale string, group int, order []int32, fill func(of [][]byte) func(b *block, row, col int)) bool {
	dtype := typeOf(codes, scale, cols, group)
	if dtype == kernels.BF16 || m.wide || m.wrong {
		return false
	}
	f, _ := dtype.Format()
	m.derived[m.name+".weight"] = checkpoints.Derived{DType: dtype, Shape: []int{rows, cols}, Order: order, Of: m.of, Make: func(dst []byte, of [][]byte) {
		const tileRows = 16 // a cache line of the words of a transposed matrix
		at, row := fill(of), cols/blockCols*f.Bytes
		parallel.Tasks(tileCount(rows, tileRows), tileRows*cols, func(i int) {
			var b block
			for col := 0; col < cols; col += blockCols {
				for r := i * tileRows; r < min(rows, (i+1)*tileRows); r++ {
					at(&b, r, col)
					b.writeBlock(dst[r*row+col/blockCols*f.Bytes:][:f.Bytes], codes, scale)
				}
			}
		})
	}}
	return true
}

// writeBlock writes a block as its format has it.
func (b *block) writeBlock(dst []byte, codes, scale string) {
	switch bits := math.Float32bits(b.scale); scale {
	case "F32":
		binary.LittleEndian.PutUint32(dst, bits)
		dst = dst[4:]
	case "BF16":
		binary.LittleEndian.PutUint16(dst, uint16(bits>>16))
		dst = dst[2:]
	case "F16":
		var half [1]uint16
		simd.NarrowF16(half[:], []float32{b.scale})
		binary.LittleEndian.PutUint16(dst, half[0])
		dst = dst[2:]
	}
	if codes == "I4" || codes == "I8Z" {
		dst[0] = b.zero
		dst = dst[1:]
	}
	if codes != "I4" {
		copy(dst, b.codes[:])
		return
	}
	for i, low := range b.codes[:blockCols/2] {
		dst[i] = low | b.codes[blockCols/2+i]<<4
	}
}

// nibbles are the 8 codes of a word, the first in the low bits.
func nibbles(codes *[8]byte, w uint32) {
	for i := range codes {
		codes[i] = byte(w >> (4 * i) & 15)
	}
}

// blockCodes gives the codes of 32 columns of a row, which follow each other in an order.
func (c *rowCodes) blockCodes(codes *[blockCols]byte, row, col int, order []int32) {
	data := c.data[row*c.stride:][:c.stride]
	if order != nil {
		for i, column := range order[col:][:blockCols] {
			if codes[i] = data[int(column)*c.bits/8]; c.bits == 4 {
				codes[i] = codes[i] >> (column % 2 * 4) & 15
			}
		}
		return
	}
	if c.bits == 8 {
		copy(codes[:], data[col:])
		return
	}
	for i := 0; i < blockCols; i += 8 {
		nibbles((*[8]byte)(codes[i:]), word(data, (col+i)/8))
	}
}
