package simd

import "unsafe"

// neonColumns is the width of a panel of the NEON kernels.
const neonColumns = 16

func panelColumns(level int) int {
	if level == neon {
		return neonColumns
	}
	return portableColumns
}

func multiplyPanel(level int, transposed bool, m, width, k int, alpha float32, a *float32, lda int,
	panel *float32, stride int, beta float32, c *float32, ldc int) {
	switch {
	case level == portable:
		multiplyPanelPortable(transposed, m, width, k, alpha, a, lda, panel, stride, beta, c, ldc)
	case width < neonColumns:
		multiplyNarrowPanel(transposed, m, width, k, alpha, a, lda, panel, stride, beta, c, ldc)
	case transposed:
		multiplyPanelTNEON(m, k, alpha, a, lda, panel, stride, beta, c, ldc)
	default:
		multiplyPanelNEON(m, k, alpha, a, lda, panel, stride, beta, c, ldc)
	}
}

// multiplyNarrowPanel multiplies by a panel where only width columns mean
// something, by way of a copy of c: there are no masked stores.
func multiplyNarrowPanel(transposed bool, m, width, k int, alpha float32, a *float32, lda int,
	panel *float32, stride int, beta float32, c *float32, ldc int) {
	const rows = 24 // a multiple of a tile's
	var copies [rows * neonColumns]float32
	for i := 0; i < m; i += rows {
		n := min(rows, m-i)
		block := unsafe.Slice(offset(c, i*ldc), (n-1)*ldc+width)
		if beta != 0 {
			for r := range n {
				copy(copies[r*neonColumns:][:width], block[r*ldc:])
			}
		}
		if transposed {
			multiplyPanelTNEON(n, k, alpha, offset(a, i), lda, panel, stride, beta, &copies[0], neonColumns)
		} else {
			multiplyPanelNEON(n, k, alpha, offset(a, i*lda), lda, panel, stride, beta, &copies[0], neonColumns)
		}
		for r := range n {
			copy(block[r*ldc:][:width], copies[r*neonColumns:])
		}
	}
}

// placeRows: there is no kernel that multiplies by b as it lies.
func placeRows(int) (rows, columns, unit int) { return 0, 0, 0 }

func multiplyRows(level int, s storage, m, width, k int, alpha float32, a *float32, lda int,
	b unsafe.Pointer, ldb int, beta float32, c *float32, ldc int) {
	panic("simd: no product with rows as they lie")
}

// dotRows is the number of rows of a that multiplyDots takes at once.
func dotRows(int) int { return 4 }

// multiplyDots uses the kernel for groups of four rows of b; a row that is left over
// is given to it four times.
func multiplyDots(level int, s storage, m, n, k int, alpha float32, a *float32, lda int,
	b unsafe.Pointer, ldb int, beta float32, c *float32, ldc int) {
	if level == portable {
		multiplyDotsPortable(s, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	const group = 4
	whole := n &^ (group - 1)
	if whole > 0 {
		multiplyDotGroups(s, m, whole, k, alpha, a, lda, (*byte)(b), ldb, beta, c, ldc)
	}
	for j := whole; j < n; j++ {
		var copies [4 * group]float32
		column := unsafe.Slice(offset(c, j), (m-1)*ldc+1)
		for i := range m {
			if beta != 0 {
				copies[i*group] = column[i*ldc]
			}
		}
		multiplyDotGroups(s, m, group, k, alpha, a, lda, (*byte)(unsafe.Add(b, j*ldb*s.size())), 0, beta, &copies[0], group)
		for i := range m {
			column[i*ldc] = copies[i*group]
		}
	}
}

func multiplyDotGroups(s storage, m, n, k int, alpha float32, a *float32, lda int,
	b *byte, ldb int, beta float32, c *float32, ldc int) {
	switch s {
	case f32:
		multiplyDotsF32NEON(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	case bf16:
		multiplyDotsBF16NEON(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	default:
		multiplyDotsF16NEON(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	}
}

// pack copies b [k, width] to the first columns of dst [k, columns].
func pack(level int, s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k int) {
	src := (*byte)(b)
	switch {
	case level == portable || width < columns:
		packPortable(s, dst, columns, b, ldb, width, k)
	case s == f32:
		packF32NEON(dst, src, ldb, k)
	case s == bf16:
		packBF16NEON(dst, src, ldb, k)
	default:
		packF16NEON(dst, src, ldb, k)
	}
}

// packTransposed copies b [width, k] to the first columns of dst [k, columns].
func packTransposed(level int, s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k int) {
	const depth = 4 // of a block
	switch {
	case level == portable || k < depth:
		packTransposedPortable(s, dst, columns, b, ldb, width, k)
	case width < blockRows:
		packTransposedFew(s, dst, columns, b, ldb, width, k, depth)
	default:
		packTransposedRows(s, dst, columns, b, ldb, width, k, depth)
	}
}

func packTransposedBlocks(s storage, dst *float32, columns int, b unsafe.Pointer, ldb, blocks int) {
	switch s {
	case f32:
		packTransposedF32NEON(dst, columns, (*byte)(b), ldb, blocks)
	case bf16:
		packTransposedBF16NEON(dst, columns, (*byte)(b), ldb, blocks)
	default:
		packTransposedF16NEON(dst, columns, (*byte)(b), ldb, blocks)
	}
}
