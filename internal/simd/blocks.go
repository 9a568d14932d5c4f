package simd

import (
	"fmt"
	"sync"
	"unsafe"

	"glimpse/internal/parallel"
)

// Blocks is how rows of quantised weights are stored: whole blocks of Elems numbers in
// Bytes bytes each.
type Blocks struct {
	Elems, Bytes int
	// Widen decodes whole blocks, and says thereby what the numbers are.
	Widen func(dst []float32, src []byte)
	// Vector is the assembly that reads the same blocks, or 0.
	Vector BlockVector
}

// BlockVector names a format of blocks that there is assembly for.
type BlockVector uint8

// The formats, with ggml's names.
const (
	_ BlockVector = iota
	VectorQ4_0
	VectorQ4_1
	VectorQ5_0
	VectorQ5_1
	VectorQ8_0
	VectorIQ4_NL
	VectorMXFP4
	VectorE2M1_E8M0
	VectorMXFP8
	VectorE4M3_BF16
	VectorE4M3_F32
	VectorI4_BF16
	VectorI4_F16
	VectorI8_BF16
	VectorI8_F16
	VectorI8Z_BF16
	VectorI8Z_F16
	VectorQ2_K
	VectorQ3_K
	VectorQ4_K
	VectorQ5_K
	VectorQ6_K
	VectorIQ4_XS
	blockVectors
)

const (
	// smallBlock and largeBlock are the elements of a block, and of a record of a
	// quantised row, that there is assembly for; the records' bytes are as in gen.
	smallBlock, smallRecord = 32, 48
	largeBlock, largeRecord = 256, 384
	// widenedColumns is the number of columns of b [k, n] that are widened at once: a row
	// of fewer would be a part of a cache line, or of a block.
	widenedColumns = 256
	// widenedPart bounds what is widened to float32 at a time.
	widenedPart = 1024
	// widenedPad keeps rows of widened blocks off each other's cache sets.
	widenedPad = 32
)

// blockKernels is the assembly for a format at a level. Without it, there are nils.
type blockKernels struct {
	decode   func(dst *float32, src *byte, blocks int)
	multiply func(m, n, blocks int, alpha float32, a *byte, lda int, b *byte, beta float32, c *float32, ldc int)
	rows     int // of a that multiply takes at once
	offset   int // of the bytes that multiply makes of weights; unrounded: it takes rows of float32
}

// unrounded is the offset of a product whose rows of a are no bytes.
const unrounded = -1

// Decode sets dst to what blocks hold: the numbers of Widen. It panics if the lengths are
// not of as many blocks.
func (f *Blocks) Decode(dst []float32, src []byte) {
	blocks := len(src) / f.Bytes
	if len(src) != blocks*f.Bytes || len(dst) != blocks*f.Elems {
		panic(fmt.Sprintf("simd.Decode: %d elements of %d bytes, want blocks of %d of %d", len(dst), len(src), f.Elems, f.Bytes))
	}
	if blocks > 0 {
		f.decode(dst, src)
	}
}

// Assembled tells that there is assembly for the format at the level in use.
func (f *Blocks) Assembled() bool { return f.kernels().decode != nil }

func (f *Blocks) decode(dst []float32, src []byte) {
	if decode := f.kernels().decode; decode != nil {
		decode(&dst[0], &src[0], len(src)/f.Bytes)
		return
	}
	f.Widen(dst, src)
}

// GemmNTBlocks sets c [m, n] = alpha · a [m, k] · b [n, k]ᵀ + beta · c. The rows of b are
// k/Elems blocks each, one after the other; k is a multiple of Elems.
//
// Up to 16 rows of a are multiplied by blocks as they are where there is assembly for the format and
// the level: by integers, for which each 32 elements of a become bytes round(x/s) for s = max|x|/127, or 0 if
// max|x| is below 2⁻¹²⁰; by floats of 8 bits in float32, without rounding either. More rows, if [Rounded], become such
// bytes, too, but for those floats, at avx2, at avx512 and avx512bf16 with VNNI, and at neon
// with ASIMDDP. One row's results are the same whatever the number of rows up to 16, or above.
// Otherwise weights are rounded to bfloat16, and the results are as [GemmNTBF16]'s, or as [GemmNT]'s if [Float32].
func GemmNTBlocks(m, n, k int, alpha float32, a []float32, lda int, f *Blocks, b []byte, how Rounding, beta float32, c []float32, ldc int) {
	f.checkProduct("GemmNTBlocks", m, n, k, len(a), lda, len(b), n, k, len(c), ldc)
	p := product{nt: true, storage: widenedTo(how), blocks: f, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: k, c: unsafe.SliceData(c), ldc: ldc}
	switch {
	case m <= maxDotRows && f.kernels().multiply != nil && (how != Float32 || f.kernels().offset == unrounded):
		p.inBlocks = true
	case m > maxDotRows && how == Rounded && f.multipliesBytes():
		p.inBytes = true
	default:
		p = p.paired(how)
	}
	multiply(p)
}

// GemmNNBlocks sets c [m, n] = alpha · a [m, k] · b [k, n] + beta · c. The rows of b are
// n/Elems blocks each, one after the other; n is a multiple of Elems. The results are as those
// of [GemmNNBF16] with weights rounded to bfloat16, or as [GemmNN]'s if [Float32], and for up to 16 rows of a where there is assembly: at
// avx2 for an n that is a multiple of 32.
func GemmNNBlocks(m, n, k int, alpha float32, a []float32, lda int, f *Blocks, b []byte, how Rounding, beta float32, c []float32, ldc int) {
	f.checkProduct("GemmNNBlocks", m, n, k, len(a), lda, len(b), k, n, len(c), ldc)
	multiply(product{storage: widenedTo(how), blocks: f,
		m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: n, c: unsafe.SliceData(c), ldc: ldc}.paired(how))
}

// widenedTo is what blocks become where they are not multiplied as they are.
func widenedTo(how Rounding) storage {
	if how == Float32 {
		return f32
	}
	return bf16
}

// SameRows is the least number of rows of a at which every row of a·bᵀ has the bits that it has among so many rows, and so
// for all numbers between: 1 of up to 16.
func SameRows(rows int) int {
	if rows > maxDotRows {
		return maxDotRows + 1
	}
	return min(1, rows)
}

// checkProduct checks what gemm does, for b [rows, columns] in blocks.
func (f *Blocks) checkProduct(op string, m, n, k, lenA, lda, lenB, rows, columns, lenC, ldc int) {
	checkShape(op, m, n, k)
	if columns%f.Elems != 0 {
		panic(fmt.Sprintf("simd.%s: rows of b of %d elements, want blocks of %d", op, columns, f.Elems))
	}
	checkMatrix(op, "a", lenA, m, k, lda)
	checkMatrix(op, "b", lenB, rows, columns/f.Elems*f.Bytes, columns/f.Elems*f.Bytes)
	checkMatrix(op, "c", lenC, m, n, ldc)
}

// quantised is a as records of bytes, scales and sums: rows of them or, for panels of bytes, cut along k into
// parts [m, depth].
type quantised struct {
	data   *byte
	depth  int // elements of a part
	stride int // bytes of a row of one
	chunks chunks
	memory []float32
}

var quantiseds = sync.Pool{New: func() any { return new(quantised) }}

func (a *quantised) layout(p *product) {
	a.depth = p.k
	record := smallRecord
	if p.blocks.Elems == largeBlock {
		record = largeRecord
	}
	a.stride = blockSize(p.k/p.blocks.Elems*record, 1, 64)
	if p.inBytes {
		a.depth = blockSize(p.k, blockCount(p.k, maxBytesDepth), p.blocks.Elems)
		a.stride = a.depth/smallBlock*panelRecord + 64 // rows of a tile do not share cache sets
	}
	bytes := blockCount(p.k, a.depth) * p.m * a.stride
	records := bytes
	a.chunks = chunks{}
	if k, ok := p.inChunks(); ok {
		count := blockCount(p.m, chunkRows)
		a.chunks.kernels, a.chunks.rows, a.chunks.stride = k, blockCount(p.m, count), blockCount(p.k, p.unitElems())*k.bytes
		bytes += count * a.chunks.stride
	}
	if n := bytes/4 + 16; n > len(a.memory) {
		a.memory = make([]float32, n)
		a.data = (*byte)(unsafe.Pointer(aligned(&a.memory[0])))
	}
	if a.chunks.rows > 0 {
		a.chunks.data = (*byte)(unsafe.Add(unsafe.Pointer(a.data), records))
		a.chunks.clearScales(p, blockCount(p.m, a.chunks.rows))
	}
}

func (a *quantised) row(i int) *byte { return (*byte)(unsafe.Add(unsafe.Pointer(a.data), i*a.stride)) }

// quantiseTask converts one row of a.
func (p *product) quantiseTask(i int) {
	a := p.quantised
	if !p.inBytes {
		quantise(a.row(i), p.blockOfA(i, 0), p.k/p.blocks.Elems, p.blocks)
		if x := &a.chunks; x.rows > 0 {
			x.kernels.spread(x.chunk(i/x.rows), a.row(i), i%x.rows, p.k/p.blocks.Elems)
		}
		return
	}
	format, _ := p.blocks.bytePanels()
	for k := 0; k < p.k; k += a.depth {
		quantisePanel(a.row(k/a.depth*p.m+i), p.blockOfA(i, k), min(a.depth, p.k-k)/smallBlock, format.offset)
	}
}

// multiplyBlocks computes p by blocks as they are.
func (j *job) multiplyBlocks(tasks int) {
	p := &j.product
	if p.inBytes || p.blocks.kernels().offset != unrounded {
		p.quantised = quantiseds.Get().(*quantised)
		p.quantised.layout(p)
		defer quantiseds.Put(p.quantised)
		if p.m*p.k < taskWork {
			for i := range p.m {
				p.quantiseTask(i)
			}
		} else {
			parallel.For(p.m, j.toQuantise)
		}
	}
	if tasks == 1 {
		p.task(0)
	} else {
		parallel.For(tasks, j.run)
	}
}

// rowForBlocks is row i of a as the product takes it, and the bytes to the next.
func (p *product) rowForBlocks(i int) (row *byte, stride int) {
	if p.quantised == nil {
		return (*byte)(unsafe.Pointer(p.blockOfA(i, 0))), 4 * p.lda
	}
	return p.quantised.row(i), p.quantised.stride
}

// blocksBlock computes columns j0 ≤ j < j1 of c. Like dots it takes a group of rows of b
// from memory once.
func (p *product) blocksBlock(j0, j1 int) {
	if p.quantised != nil && p.quantised.chunks.rows > 0 {
		p.chunksBlock(j0, j1)
		return
	}
	kernels := p.blocks.kernels()
	group := j1 - j0
	if p.m > kernels.rows {
		group = dotColumns
	}
	blocks := p.k / p.blocks.Elems
	for j := j0; j < j1; j += group {
		b := (*byte)(unsafe.Add(p.b, j*blocks*p.blocks.Bytes))
		for i := 0; i < p.m; i += kernels.rows {
			a, lda := p.rowForBlocks(i)
			kernels.multiply(min(kernels.rows, p.m-i), min(group, j1-j), blocks, p.alpha, a, lda,
				b, p.beta, offset(p.c, i*p.ldc+j), p.ldc)
		}
	}
}

// decodeRows returns rows i … i+rows of b, from column j on, in float32.
func (s *scratch) decodeRows(p *product, i, j, rows, columns int) unsafe.Pointer {
	s.needRows()
	f := p.blocks
	if columns == p.ldb { // no gaps
		rows, columns = 1, rows*columns
	}
	for r := range rows {
		from := ((i+r)*p.ldb + j) / f.Elems * f.Bytes
		f.decode(unsafe.Slice(offset(s.rows, r*columns), columns), unsafe.Slice((*byte)(unsafe.Add(p.b, from)), columns/f.Elems*f.Bytes))
	}
	return unsafe.Pointer(s.rows)
}

// widened is a part of b as the product's storage, from row i and column j on. It starts and ends
// between blocks.
type widened struct {
	i, j, rows, columns int
	memory              []float32
	wide                [widenedPart]float32
}

// at is element [i, j] of the part.
func (w *widened) at(s storage, i, j int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(w.memory)), (i*w.stride()+j)*s.size())
}

func (w *widened) stride() int { return w.columns + widenedPad }

// weights returns element [i, j] of b [rows, p.ldb]; the elements from there up to row
// i + rows and column j + columns are readable as elements of p.storage, with the row stride.
func (p *product) weights(s *scratch, i, j, rows, columns int) (b unsafe.Pointer, ldb int) {
	if p.blocks == nil {
		return unsafe.Add(p.b, (i*p.ldb+j)*p.storage.size()), p.ldb
	}
	w := s.widenBlock(p, i, j, rows, columns)
	return w.at(p.storage, i-w.i, j-w.j), w.stride()
}

func (s *scratch) widenBlock(p *product, i, j, rows, columns int) *widened {
	w := &s.widened
	if i == w.i && rows == w.rows && j >= w.j && j+columns <= w.j+w.columns {
		return w
	}
	f := p.blocks
	w.i, w.rows, w.j = i, rows, j/f.Elems*f.Elems
	if !p.nt { // the next panels are right of this one
		columns = max(columns, min(widenedColumns, p.n-j))
	}
	w.columns = blockSize(j+columns-w.j, 1, f.Elems)
	if n := (rows*w.stride()*p.storage.size() + 3) / 4; n > len(w.memory) {
		w.memory = make([]float32, n)
	}
	for r := range rows {
		row := unsafe.Slice((*byte)(unsafe.Add(p.b, (i+r)*p.ldb/f.Elems*f.Bytes)), p.ldb/f.Elems*f.Bytes)
		part := widenedPart / f.Elems * f.Elems
		for at := 0; at < w.columns; at += part {
			n := min(part, w.columns-at)
			first := (w.j + at) / f.Elems * f.Bytes
			some, to := row[first:first+n/f.Elems*f.Bytes], w.at(p.storage, r, at)
			if p.storage == f32 {
				f.decode(unsafe.Slice((*float32)(to), n), some)
				continue
			}
			f.decode(w.wide[:n], some)
			if p.terms > 0 {
				// Subnormal numbers become 0, which the product makes of them anyway.
				narrowRow((*float32)(to), &w.wide[0], n)
			} else {
				narrowBF16(unsafe.Slice((*uint16)(to), n), w.wide[:n])
			}
		}
	}
	return w
}
