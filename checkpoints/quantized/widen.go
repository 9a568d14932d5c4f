package quantized

import (
	"cmp"
	"encoding/binary"
	"sync"
	"unsafe"

	"glimpse/checkpoints"
	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

// tile is a part of a matrix.
type tile struct{ row, rows, col, cols int }

// tileElements is the largest tile's; its numbers stay in a core's first cache.
const tileElements = 8192

type scratch struct {
	wide [tileElements]float32
	half [tileElements]uint16
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// widenTiles makes a matrix [rows, cols] of BF16, in tiles of at most so many rows and columns, on all
// cores. Fill writes the numbers of a tile into rows of tileCols; they are products in the
// type of the scale, and are rounded to that before they are rounded to BF16.
func widenTiles(dst []byte, rows, cols, tileRows, tileCols int, scale string, fill func(x []float32, t tile)) {
	bits := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)/2)
	parallel.Tasks(tileCount(rows, tileRows), tileRows*cols, func(i int) {
		s := scratches.Get().(*scratch)
		defer scratches.Put(s)
		t := tile{row: i * tileRows}
		t.rows = min(tileRows, rows-t.row)
		for ; t.col < cols; t.col += tileCols {
			t.cols = min(tileCols, cols-t.col)
			x := s.wide[:(t.rows-1)*tileCols+t.cols]
			fill(x, t)
			if scale == "F16" {
				simd.NarrowF16(s.half[:len(x)], x)
				simd.WidenF16(x, s.half[:len(x)])
			}
			for r := range t.rows {
				simd.NarrowBF16(bits[(t.row+r)*cols+t.col:][:t.cols], x[r*tileCols:][:t.cols])
			}
		}
	})
}

// grid are the scales of a matrix and its zero points, one for a block of elements.
type grid struct {
	blockRows, blockCols int
	width                int // blocks beside each other
	scale                []float32
	zero                 []float32 // nil: 0
	group                []int     // of each column, in the place of the block that it is in; nil: that
}

func (g *grid) scaleAt(row, block int) (scale, zero float32) {
	i := row/g.blockRows*g.width + block
	if g.zero == nil {
		return g.scale[i], 0
	}
	return g.scale[i], g.zero[i]
}

// newGrid is that of blocks, 0 of whose rows or columns are all of the matrix's.
func newGrid(rows, cols, blockRows, blockCols int) grid {
	g := grid{blockRows: cmp.Or(blockRows, rows), blockCols: cmp.Or(blockCols, cols)}
	g.width = tileCount(cols, g.blockCols)
	return g
}

// rowCodes are codes whose rows are the matrix's.
type rowCodes struct {
	data   []byte
	stride int           // bytes of a row
	bits   int           // 8, or 4: the low ones of a byte come first
	values *[256]float32 // by code; of 4 bits small
}

// widenRows widens codes by their grid.
func widenRows(dst []byte, rows, cols int, c rowCodes, g *grid, scale string) {
	widenTiles(dst, rows, cols, 1, tileElements, scale, func(x []float32, t tile) {
		row := c.data[t.row*c.stride:][:c.stride]
		for i := 0; i < len(x); {
			col := t.col + i
			block, n := col/g.blockCols, len(x)-i
			if g.group == nil {
				n = min(n, (block+1)*g.blockCols-col)
			} else {
				block = g.group[col]
				for n = 1; i+n < len(x) && g.group[col+n] == block; n++ {
				}
			}
			s, z := g.scaleAt(t.row, block)
			c.fillRow(x[i:i+n], row, col, s, z)
			i += n
		}
	})
}

// fillRow writes the numbers of a row from a column on, which share a scale and a zero point.
func (c *rowCodes) fillRow(x []float32, row []byte, col int, s, z float32) {
	values := c.values
	if c.bits == 8 {
		for i, b := range row[col:][:len(x)] {
			x[i] = (values[b] - z) * s
		}
		return
	}
	for len(x) > 0 {
		if col%8 == 0 && len(x) >= 8 {
			eight((*[8]float32)(x), word(row, col/8), s, z)
			x, col = x[8:], col+8
		} else {
			x[0] = (values[row[col/2]>>(col%2*4)&15] - z) * s
			x, col = x[1:], col+1
		}
	}
}

// eight widens 8 codes of 4 bits that share a scale and a zero point, the first in the low bits.
func eight(x *[8]float32, w uint32, s, z float32) {
	x[0] = (small[w&15] - z) * s
	x[1] = (small[w>>4&15] - z) * s
	x[2] = (small[w>>8&15] - z) * s
	x[3] = (small[w>>12&15] - z) * s
	x[4] = (small[w>>16&15] - z) * s
	x[5] = (small[w>>20&15] - z) * s
	x[6] = (small[w>>24&15] - z) * s
	x[7] = (small[w>>28] - z) * s
}

// small are the numbers from 0 to 255: looking one up takes half the time of converting it.
var small = table(func(b int) int { return b })

func table(value func(b int) int) (t [256]float32) {
	for b := range t {
		t[b] = float32(value(b))
	}
	return t
}

// readFloats are a tensor's numbers; the type is one of floatTypes.
func readFloats(data []byte, dtype string) []float32 {
	t, err := kernels.ParseDType(dtype)
	if err != nil {
		panic(err)
	}
	view := checkpoints.TensorView{DType: t, Data: data}
	x := make([]float32, view.Len())
	if err := view.ReadF32(x); err != nil {
		panic(err)
	}
	return x
}

// integers are a tensor's numbers, of I8, I32 or I64.
func integers(data []byte, dtype string) []int {
	size := map[string]int{"I8": 1, "I32": 4, "I64": 8}[dtype]
	x := make([]int, len(data)/size)
	for i := range x {
		switch size {
		case 1:
			x[i] = int(int8(data[i]))
		case 4:
			x[i] = int(int32(binary.LittleEndian.Uint32(data[4*i:])))
		case 8:
			x[i] = int(binary.LittleEndian.Uint64(data[8*i:]))
		}
	}
	return x
}

// word is a packed word of 32 bits.
func word(data []byte, i int) uint32 { return binary.LittleEndian.Uint32(data[4*i:]) }
