//go:build !amd64

package simd

import "unsafe"

func kernelLevel(l int) int { return l }

// hasPairs: no level of these processors multiplies pairs of bfloat16, so that none
// of the functions below is called.
func hasPairs(int) bool { return false }

func hasTiles(int) bool { return false }

const tileRows = 0

func pairsUnit() int { panic("simd: no products of bfloat16 pairs") }

func multiplyPairs(m, width, pairs int, alpha float32, a *float32, lda int, panel *float32, beta float32, c *float32, ldc int) {
	panic("simd: no products of bfloat16 pairs")
}

func narrowRow(dst, src *float32, n int) { panic("simd: no products of bfloat16 pairs") }

func splitRow(high, low, src *float32, n int) { panic("simd: no products of bfloat16 pairs") }

func packPairs(nt bool, dst *float32, b unsafe.Pointer, ldb, width, pairs int) {
	panic("simd: no products of bfloat16 pairs")
}
