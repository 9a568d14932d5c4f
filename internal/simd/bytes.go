package simd

import "unsafe"

const (
	// panelRecord is the bytes of a record of 32 elements of a for panels of bytes, as in gen.
	panelRecord = 64
	// maxBytesDepth bounds the part of k that a panel of bytes covers: with its scales it takes three quarters of
	// what one of float32 does.
	maxBytesDepth = 512
	// panelWords and panelScales are the words of such a panel and its scales, at most two for 32 elements, of most columns.
	// As many minima come after them, as in gen.
	panelWords  = maxBytesDepth / 4 * maxColumns
	panelScales = maxBytesDepth / smallBlock * 2 * maxColumns
)

type (
	unpackBlocks  = func(dst *byte, scales, minima *float32, src *byte, blocks int)
	multiplyBytes = func(m, width, groups int, alpha float32, a *byte, lda int, panel *byte, scales, sums *float32, beta float32, c *float32, ldc int)
)

// bytePanels is the assembly that multiplies many rows by a format's blocks as panels of bytes.
type bytePanels struct {
	unpack   unpackBlocks
	multiply multiplyBytes
	columns  int // of a panel
	offset   int // of the bytes
	parts    int // of 32 elements, with a scale each
}

// multipliesBytes tells whether there is such assembly at the level in use.
func (f *Blocks) multipliesBytes() bool {
	_, ok := f.bytePanels()
	return ok
}

// bytesBlock is block for panels of bytes.
func (p *product) bytesBlock(i0, i1, j0, j1 int) {
	s := p.scratch()
	defer scratches.Put(s)
	a := p.quantised
	format, _ := p.blocks.bytePanels()
	scales, sums := offset(s.panel, panelWords), offset(s.panel, panelWords+2*panelScales)
	for k, beta := 0, p.beta; k < p.k; k, beta = k+a.depth, 1 {
		depth := min(a.depth, p.k-k)
		for j := j0; j < j1; j += format.columns {
			width := min(format.columns, j1-j)
			s.packBytes(p, &format, j, k, width, depth)
			format.multiply(i1-i0, width, depth/smallBlock, p.alpha, a.row(k/a.depth*p.m+i0), a.stride,
				(*byte)(unsafe.Pointer(s.panel)), scales, sums, beta, offset(p.c, i0*p.ldc+j), p.ldc)
		}
	}
}

// packBytes makes the panel of rows j … j+width of b from element k on: words of four bytes, scales and minima,
// transposed.
func (s *scratch) packBytes(p *product, format *bytePanels, j, k, width, depth int) {
	s.needRows()
	const pad = 16 // keeps rows off each other's cache sets
	words, groups := depth/4, depth/smallBlock*format.parts
	ldw, lds := words+pad, groups+pad
	scales := offset(s.rows, maxColumns*ldw)
	minima := offset(scales, maxColumns*lds)
	for i := range width {
		from := unsafe.Add(p.b, ((j+i)*p.k+k)/p.blocks.Elems*p.blocks.Bytes)
		format.unpack((*byte)(unsafe.Pointer(offset(s.rows, i*ldw))), offset(scales, i*lds), offset(minima, i*lds), (*byte)(from), depth/p.blocks.Elems)
	}
	// Four bytes are moved like a word, whatever they mean.
	columns := format.columns
	packTransposed(level, f32, s.panel, columns, unsafe.Pointer(s.rows), ldw, width, words)
	packTransposed(level, f32, offset(s.panel, panelWords), columns, unsafe.Pointer(scales), lds, width, groups)
	packTransposed(level, f32, offset(s.panel, panelWords+panelScales), columns, unsafe.Pointer(minima), lds, width, groups)
}
