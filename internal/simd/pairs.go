package simd

import (
	"sync"
	"unsafe"

	"glimpse/internal/parallel"
)

// RoundsBF16 reports whether the level in use multiplies pairs of bfloat16, which is
// where the Rounded products differ from the others.
func RoundsBF16() bool { return pairs }

// GemmNTBF16Rounded is [GemmNTBF16], but may round a to bfloat16 first, nearest with
// ties to even, where the processor then multiplies more than twice as fast: if
// [RoundsBF16], more than 16 rows, and even k and ldb. Products are still summed in
// float32; numbers below 2⁻¹²⁶ count as 0.
func GemmNTBF16Rounded(m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	checkGemmNT("GemmNTBF16Rounded", m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	multiply(product{nt: true, storage: bf16, rounded: pairs && m > maxDotRows && k%2 == 0 && ldb%2 == 0,
		m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: ldb, c: unsafe.SliceData(c), ldc: ldc})
}

// GemmNNBF16Rounded is to [GemmNNBF16] what [GemmNTBF16Rounded] is to [GemmNTBF16].
func GemmNNBF16Rounded(m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	checkGemmNN("GemmNNBF16Rounded", m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	multiply(product{storage: bf16, rounded: pairs && m > maxDotRows && k%2 == 0,
		m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: ldb, c: unsafe.SliceData(c), ldc: ldc})
}

const (
	// maxPairs bounds the pairs of k that one panel covers.
	maxPairs = maxDepth
	// maxRoundedRows bounds a block of rows. It is large because packing a panel takes
	// as long as multiplying dozens of rows by it.
	maxRoundedRows = 44 * rowUnit
	// narrowRows is the number of rows of a that one task narrows.
	narrowRows = 16
)

// narrowed is a in bfloat16, cut along k into parts [m, stride] of up to depth pairs.
type narrowed struct {
	data          *float32 // of two bfloat16 each
	depth, stride int
	memory        []float32
}

var narrows = sync.Pool{New: func() any { return new(narrowed) }}

// layout sizes a for the shape of p.
func (a *narrowed) layout(p *product) {
	all := p.k / 2
	a.depth = blockSize(all, blocks(all, maxPairs), max(8, pairsUnit()))
	// Rows of a tile must not share cache sets.
	a.stride = (a.depth+15)&^15 + 16
	if n := (blocks(all, a.depth)*p.m+tileRows)*a.stride + 16; n > len(a.memory) {
		a.memory = make([]float32, n)
		a.data = aligned(&a.memory[0])
	}
}

// part returns rows from i on of the part that starts at pair k.
func (a *narrowed) part(m, i, k int) *float32 {
	return offset(a.data, (k/a.depth*m+i)*a.stride)
}

// narrowTask converts some rows of a.
func (p *product) narrowTask(task int) {
	for i := task * narrowRows; i < min(p.m, (task+1)*narrowRows); i++ {
		for k := 0; k < p.k/2; k += p.narrow.depth {
			pairs, row := min(p.k/2-k, p.narrow.depth), p.narrow.part(p.m, i, k)
			narrowRow(row, p.blockOfA(i, 2*k), 2*pairs)
			fillUp(row, pairs, 1)
		}
	}
}

// fillUp puts zeros behind some depths of the given width, up to what is multiplied at once.
func fillUp(x *float32, depths, width int) {
	if more := blockSize(depths, 1, pairsUnit()) - depths; more > 0 {
		clear(unsafe.Slice(offset(x, depths*width), more*width))
	}
}

// multiplyRounded computes p through bfloat16 pairs.
func (j *job) multiplyRounded(tasks int) {
	p := &j.product
	p.narrow = narrows.Get().(*narrowed)
	p.narrow.layout(p)
	if n := blocks(p.m, narrowRows); p.m*p.k < taskWork {
		for task := range n {
			p.narrowTask(task)
		}
	} else {
		parallel.For(n, j.toNarrow)
	}
	parallel.For(tasks, j.run)
	narrows.Put(p.narrow)
}

// roundedBlock is block for bfloat16 pairs.
func (p *product) roundedBlock(i0, i1, j0, j1 int) {
	s := p.scratch()
	defer scratches.Put(s)
	a := p.narrow
	for k, beta := 0, p.beta; k < p.k/2; k, beta = k+a.depth, 1 {
		depth := min(a.depth, p.k/2-k)
		for j := j0; j < j1; j += maxColumns {
			width := min(maxColumns, j1-j)
			i, at, rows, columns := 2*k, j, 2*depth, width
			if p.nt {
				i, at, rows, columns = j, 2*k, width, 2*depth
			}
			b, ldb := p.weights(s, i, at, rows, columns)
			packPairs(p.nt, s.panel, b, ldb, width, depth)
			fillUp(s.panel, depth, maxColumns)
			multiplyPairs(i1-i0, width, depth, p.alpha, a.part(p.m, i0, k), a.stride, s.panel, beta, offset(p.c, i0*p.ldc+j), p.ldc)
		}
	}
}
