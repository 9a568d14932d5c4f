package simd

import "unsafe"

const (
	// chunkRows is the rows of a that are multiplied at once by unpacked rows of b, as in gen.
	chunkRows = 8
	// The bytes of a chunk by what b is, as in gen.
	smallChunk, largeChunk = 704, 2816
	smallChunkScales       = 512
	// unpackedBytes bounds what the rows of b that are unpacked for all rows of a take of the level-1 cache, if they are more than two.
	unpackedBytes = 8 << 10
)

// chunkKernels is the assembly that multiplies up to chunkRows rows of a by rows of a format's blocks that are unpacked once
// for all of them. A row has the bits that it has by itself.
type chunkKernels struct {
	unpack   unpackBlocks
	spread   func(dst, src *byte, row, records int)
	multiply func(m, n, blocks int, alpha float32, a, b *byte, stride, scales, minima int, factor, beta float32, c *float32, ldc int, next uintptr, step int)
	bytes    int     // of a chunk's two small blocks, or large block
	factor   float32 // of minima or, if it is not 1, of scales that stand for them
}

// chunks is a as chunkKernels take it: chunks of rows, behind the records that they were made of.
type chunks struct {
	kernels chunkKernels
	rows    int // of a chunk, at most
	stride  int // bytes of one
	data    *byte
}

// unpackedRow is where an unpacked row of b has what follows its bytes.
type unpackedRow struct{ scales, minima, stride int }

func (p *product) unpackedRow() (r unpackedRow) {
	groups := blockCount(p.k, 2*smallBlock) * 2
	r.scales = groups * smallBlock
	r.minima = r.scales + groups*4
	r.stride = blockSize(r.minima+groups*4, 1, 64) + 64 // rows do not share cache sets
	return r
}

// inChunks reports whether p's rows are multiplied in chunks.
func (p *product) inChunks() (k chunkKernels, ok bool) {
	if k, ok = p.blocks.chunkKernels(p.m); !ok {
		return k, false
	}
	return k, 2*p.unpackedRow().stride <= rowsBytes
}

// unitElems is the elements of a row in a part of a chunk.
func (p *product) unitElems() int { return max(p.blocks.Elems, 2*smallBlock) }

// clearScales makes scales of rows that no chunk has 0: they are multiplied with the others.
func (x *chunks) clearScales(p *product, count int) {
	if p.blocks.Elems != smallBlock || p.m == count*chunkRows {
		return
	}
	for at := 0; at < count*x.stride; at += smallChunk {
		clear(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(x.data), at+smallChunkScales)), smallChunk-smallChunkScales))
	}
}

func (x *chunks) chunk(i int) *byte { return (*byte)(unsafe.Add(unsafe.Pointer(x.data), i*x.stride)) }

// chunksBlock is blocksBlock for rows in chunks.
func (p *product) chunksBlock(j0, j1 int) {
	s := p.scratch()
	defer scratches.Put(s)
	s.needRows()
	a := &p.quantised.chunks
	k, blocks := &a.kernels, p.k/p.blocks.Elems
	row := p.unpackedRow()
	columns := min(dotColumns, max(2, unpackedBytes/row.stride&^1))
	minima := row.minima
	if k.factor != 1 {
		minima = row.scales
	}
	of := blocks * p.blocks.Bytes // bytes of a row of b
	step := 2 * of / (blockCount(p.k, 2*smallBlock) * blockCount(p.m, a.rows))
	for j := j0; j < j1; j += columns {
		next := uintptr(p.b) + uintptr((j+columns)*of) // which may lie behind b
		width := min(columns, j1-j)
		for i := range width {
			to := unsafe.Add(unsafe.Pointer(s.rows), i*row.stride)
			scales, minima := unsafe.Add(to, row.scales), unsafe.Add(to, row.minima)
			k.unpack((*byte)(to), (*float32)(scales), (*float32)(minima), (*byte)(unsafe.Add(p.b, (j+i)*of)), blocks)
			if p.blocks.Elems == smallBlock && blocks%2 == 1 { // the group behind the last
				*(*float32)(unsafe.Add(scales, 4*blocks)), *(*float32)(unsafe.Add(minima, 4*blocks)) = 0, 0
			}
		}
		for i := 0; i < p.m; i += a.rows {
			k.multiply(min(a.rows, p.m-i), width, blocks, p.alpha, a.chunk(i/a.rows), (*byte)(unsafe.Pointer(s.rows)),
				row.stride, row.scales, minima, k.factor, p.beta, offset(p.c, i*p.ldc+j), p.ldc, next, step)
			next += uintptr((width + 1) / 2 * of * 2 / blockCount(p.m, a.rows))
		}
	}
}
