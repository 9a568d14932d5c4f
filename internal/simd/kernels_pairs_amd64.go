package simd

import "unsafe"

func multiplyPairs(m, width, pairs int, alpha float32, a *float32, lda int, panel *float32, beta float32, c *float32, ldc int) {
	multiplyPairsAVX512BF16(m, width, pairs, alpha, a, lda, panel, beta, c, ldc)
}

func narrowRow(dst, src *float32, n int) { narrowRowAVX512BF16(dst, src, n) }

// packPairs copies b, [width, 2·pairs] if nt and [2·pairs, width] otherwise, to the
// first columns of dst [pairs, maxColumns].
func packPairs(nt bool, dst *float32, b unsafe.Pointer, ldb, width, pairs int) {
	if !nt {
		packPairsAVX512BF16(dst, (*byte)(b), ldb, width, pairs)
		return
	}
	// A pair is moved like a word, whatever it means.
	packTransposed(avx512, f32, dst, maxColumns, b, ldb/2, width, pairs)
}
