package simd

import "unsafe"

func panelColumns(level int) int {
	switch level {
	case avx512:
		return 32
	case avx2:
		return 16
	}
	return portableColumns
}

func multiplyPanel(level int, transposed bool, m, width, k int, alpha float32, a *float32, lda int,
	panel *float32, stride int, beta float32, c *float32, ldc int) {
	switch {
	case level == avx512 && transposed:
		multiplyPanelTAVX512(m, width, k, alpha, a, lda, panel, stride, beta, c, ldc)
	case level == avx512:
		multiplyPanelAVX512(m, width, k, alpha, a, lda, panel, stride, beta, c, ldc)
	case level == avx2 && transposed:
		multiplyPanelTAVX2(m, width, k, alpha, a, lda, panel, stride, beta, c, ldc)
	case level == avx2:
		multiplyPanelAVX2(m, width, k, alpha, a, lda, panel, stride, beta, c, ldc)
	default:
		multiplyPanelPortable(transposed, m, width, k, alpha, a, lda, panel, stride, beta, c, ldc)
	}
}

// placeRows is the rows of a and the columns of b that multiplyRows takes at once, and the unit that b's columns are a multiple
// of, 0 where there is no such kernel.
func placeRows(level int) (rows, columns, unit int) {
	switch level {
	case avx512:
		return 4, 64, 1
	case avx2:
		return 2, 32, 32
	}
	return 0, 0, 0
}

func multiplyRows(level int, s storage, m, width, k int, alpha float32, a *float32, lda int,
	b unsafe.Pointer, ldb int, beta float32, c *float32, ldc int) {
	row := (*byte)(b)
	switch {
	case level == avx512 && s == f32:
		multiplyRowsF32AVX512(m, width, k, alpha, a, lda, row, ldb, beta, c, ldc)
	case level == avx512 && s == bf16:
		multiplyRowsBF16AVX512(m, width, k, alpha, a, lda, row, ldb, beta, c, ldc)
	case level == avx512:
		multiplyRowsF16AVX512(m, width, k, alpha, a, lda, row, ldb, beta, c, ldc)
	case s == f32:
		multiplyRowsF32AVX2(m, width, k, alpha, a, lda, row, ldb, beta, c, ldc)
	case s == bf16:
		multiplyRowsBF16AVX2(m, width, k, alpha, a, lda, row, ldb, beta, c, ldc)
	default:
		multiplyRowsF16AVX2(m, width, k, alpha, a, lda, row, ldb, beta, c, ldc)
	}
}

// dotRows is the number of rows of a that multiplyDots takes at once.
func dotRows(level int) int {
	if level == avx2 {
		return 3
	}
	return 4
}

func multiplyDots(level int, s storage, m, n, k int, alpha float32, a *float32, lda int,
	b unsafe.Pointer, ldb int, beta float32, c *float32, ldc int) {
	row := (*byte)(b)
	switch {
	case level == avx512 && s == f32:
		multiplyDotsF32AVX512(m, n, k, alpha, a, lda, row, ldb, beta, c, ldc)
	case level == avx512 && s == bf16:
		multiplyDotsBF16AVX512(m, n, k, alpha, a, lda, row, ldb, beta, c, ldc)
	case level == avx512:
		multiplyDotsF16AVX512(m, n, k, alpha, a, lda, row, ldb, beta, c, ldc)
	case level == avx2 && s == f32:
		multiplyDotsF32AVX2(m, n, k, alpha, a, lda, row, ldb, beta, c, ldc)
	case level == avx2 && s == bf16:
		multiplyDotsBF16AVX2(m, n, k, alpha, a, lda, row, ldb, beta, c, ldc)
	case level == avx2:
		multiplyDotsF16AVX2(m, n, k, alpha, a, lda, row, ldb, beta, c, ldc)
	default:
		multiplyDotsPortable(s, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	}
}

// pack copies b [k, width] to the first columns of dst [k, columns].
func pack(level int, s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k int) {
	src := (*byte)(b)
	switch {
	case level == avx512 && s == f32:
		packF32AVX512(dst, src, ldb, width, k)
	case level == avx512 && s == bf16:
		packBF16AVX512(dst, src, ldb, width, k)
	case level == avx512:
		packF16AVX512(dst, src, ldb, width, k)
	case level == avx2 && s == f32:
		packF32AVX2(dst, src, ldb, width, k)
	case level == avx2 && width == columns && s == bf16:
		packBF16AVX2(dst, src, ldb, width, k)
	case level == avx2 && width == columns && s == f16:
		packF16AVX2(dst, src, ldb, width, k)
	default:
		packPortable(s, dst, columns, b, ldb, width, k)
	}
}

// packTransposed copies b [width, k] to the first columns of dst [k, columns].
func packTransposed(level int, s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k int) {
	depth := 8 // of a block
	if s == bf16 {
		depth = 16
	}
	if level == portable || k < depth {
		packTransposedPortable(s, dst, columns, b, ldb, width, k)
		return
	}
	if width < blockRows {
		packTransposedFew(s, dst, columns, b, ldb, width, k, depth)
		return
	}
	packTransposedRows(s, dst, columns, b, ldb, width, k, depth)
}

func packTransposedBlocks(s storage, dst *float32, columns int, b unsafe.Pointer, ldb, blocks int) {
	switch s {
	case f32:
		packTransposedF32(dst, columns, (*byte)(b), ldb, blocks)
	case bf16:
		packTransposedBF16(dst, columns, (*byte)(b), ldb, blocks)
	default:
		packTransposedF16(dst, columns, (*byte)(b), ldb, blocks)
	}
}
