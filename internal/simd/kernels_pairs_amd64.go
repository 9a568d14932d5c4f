package simd

import "unsafe"

// pairsUnit is what the pairs of a and of a panel are filled up to with zeros.
func pairsUnit() int {
	if tiles {
		return tileDepth
	}
	return 1
}

// tileDepth is the pairs in a row of a tile of AMX, tileRows the rows of a that are multiplied at once.
const tileDepth, tileRows = 16, 32

// multiplyTiles sets c [m, width] = alpha·a·panel + beta·c, for pairs of bfloat16, a [m, pairs] and panel
// [pairs, 32], by AMX (TDPBF16PS). What follows the pairs of a row of a and the rows of the panel, up to a multiple of 16, is 0;
// a can be read up to a multiple of 32 rows.
//
//go:noescape
func multiplyTiles(m, width, pairs int, alpha float32, a *float32, lda int, panel *float32, beta float32, c *float32, ldc int)

func multiplyPairs(m, width, pairs int, alpha float32, a *float32, lda int, panel *float32, beta float32, c *float32, ldc int) {
	if tiles {
		multiplyTiles(m, width, pairs, alpha, a, lda, panel, beta, c, ldc)
		return
	}
	multiplyPairsAVX512BF16(m, width, pairs, alpha, a, lda, panel, beta, c, ldc)
}

func narrowRow(dst, src *float32, n int) { narrowRowAVX512BF16(dst, src, n) }

func splitRow(high, low, src *float32, n int) { splitRowAVX512BF16(high, low, src, n) }

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
