package simd

import (
	"sync"
	"unsafe"

	"glimpse/internal/parallel"
)

// RoundsBF16 reports whether the level in use multiplies pairs of bfloat16, which is
// where products with bfloat16 by a [Rounding] differ from the others.
func RoundsBF16() bool { return pairs }

// SplitsBF16 reports whether it does so for [Split], too.
func SplitsBF16() bool { return tiles }

// Rounding says what a product of more than 16 rows with b of bfloat16, or of blocks, may make of a where the processor is faster then.
// At levels that multiply pairs of bfloat16 ([RoundsBF16]) these are such pairs, for a·bᵀ of even k and ldb; products are still
// summed in float32, and numbers below 2⁻¹²⁶ count as 0. At other levels they are bytes, for blocks ([GemmNTBlocks]).
type Rounding uint8

const (
	// Exact leaves a in float32.
	Exact Rounding = iota
	// Split makes two bfloat16 of each number of a, whose sum it nearly is, at level amx and where b is not of blocks: a product is
	// off by 2⁻¹⁶ of itself at most. Numbers that are not finite, or next to the largest, give NaN.
	Split
	// Rounded rounds a to bfloat16 or, for blocks, to bytes, nearest with ties to even.
	Rounded
	// Float32 is Exact for few rows, too, and leaves b as it is: blocks are widened to float32, not to bfloat16. Products that need not be
	// fast are of this kind.
	Float32
)

// paired is p by pairs, where how allows and the processor has them.
func (p product) paired(how Rounding) product {
	switch {
	case !pairs || p.m <= maxDotRows || p.nt && (p.k%2 == 1 || p.ldb%2 == 1):
	case how == Rounded:
		p.terms = 1
	case how == Split && tiles && p.blocks == nil:
		p.terms = 2 // high·b + low·b
	}
	return p
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

// narrowed is a in bfloat16, cut along k into parts [m, stride] of up to depth pairs: the numbers, or their
// higher and their lower parts.
type narrowed struct {
	data          *float32 // of two bfloat16 each
	depth, stride int
	memory        []float32
}

var narrows = sync.Pool{New: func() any { return new(narrowed) }}

// layout sizes a for the shape of p.
func (a *narrowed) layout(p *product) {
	all := p.k / 2
	a.depth = blockSize(all, blockCount(all, maxPairs/p.terms/16*16), max(8, pairsUnit()))
	// Rows of a tile must not share cache sets.
	a.stride = (p.terms*a.depth+15)&^15 + 16
	if n := (blockCount(all, a.depth)*p.m+tileRows)*a.stride + 16; n > len(a.memory) {
		a.memory = make([]float32, n)
		a.data = aligned(&a.memory[0])
	}
}

// rowsPart returns rows from i on of the part that starts at pair k.
func (a *narrowed) rowsPart(m, i, k int) *float32 {
	return offset(a.data, (k/a.depth*m+i)*a.stride)
}

// filled is the pairs that some are filled up to with zeros.
func filled(pairs int) int { return blockSize(pairs, 1, pairsUnit()) }

// narrowTask converts some rows of a.
func (p *product) narrowTask(task int) {
	for i := task * narrowRows; i < min(p.m, (task+1)*narrowRows); i++ {
		for k := 0; k < p.k/2; k += p.narrow.depth {
			pairs, row, from := min(p.k/2-k, p.narrow.depth), p.narrow.rowsPart(p.m, i, k), p.blockOfA(i, 2*k)
			if p.terms == 1 {
				narrowRow(row, from, 2*pairs)
			} else {
				low := offset(row, filled(pairs))
				splitRow(row, low, from, 2*pairs)
				fillUp(low, pairs, 1)
			}
			fillUp(row, pairs, 1)
		}
	}
}

// fillUp puts zeros behind some depths of the given width, up to what is multiplied at once.
func fillUp(x *float32, depths, width int) {
	if more := filled(depths) - depths; more > 0 {
		clear(unsafe.Slice(offset(x, depths*width), more*width))
	}
}

// multiplyPaired computes p through bfloat16 pairs.
func (j *job) multiplyPaired(tasks int) {
	p := &j.product
	p.narrow = narrows.Get().(*narrowed)
	p.narrow.layout(p)
	if n := blockCount(p.m, narrowRows); p.m*p.k < taskWork {
		for task := range n {
			p.narrowTask(task)
		}
	} else {
		parallel.For(n, j.toNarrow)
	}
	parallel.For(tasks, j.run)
	narrows.Put(p.narrow)
}

// pairedBlock is block for bfloat16 pairs.
func (p *product) pairedBlock(i0, i1, j0, j1 int) {
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
			if n := filled(depth) * maxColumns; p.terms == 2 {
				copy(unsafe.Slice(offset(s.panel, n), n), unsafe.Slice(s.panel, n))
			}
			multiplyPairs(i1-i0, width, p.terms*filled(depth), p.alpha, a.rowsPart(p.m, i0, k), a.stride, s.panel, beta, offset(p.c, i0*p.ldc+j), p.ldc)
		}
	}
}
