//go:build !amd64 && !arm64

package simd

import "unsafe"

var levelNames = [...]string{"portable"}

func detect() int { return portable }

func preferred(best int) int { return best }

var vectorLevels [1]*vectorKernels

func widenBF16(dst []float32, src []uint16)  { widenBF16Portable(dst, src) }
func widenF16(dst []float32, src []uint16)   { widenF16Portable(dst, src) }
func narrowBF16(dst []uint16, src []float32) { narrowBF16Portable(dst, src) }
func narrowF16(dst []uint16, src []float32)  { narrowF16Portable(dst, src) }

func panelColumns(level int) int { return portableColumns }

func multiplyPanel(level int, transposed bool, m, width, k int, alpha float32, a *float32, lda int,
	panel *float32, stride int, beta float32, c *float32, ldc int) {
	multiplyPanelPortable(transposed, m, width, k, alpha, a, lda, panel, stride, beta, c, ldc)
}

func dotRows(level int) int { return 4 }

func multiplyDots(level int, s storage, m, n, k int, alpha float32, a *float32, lda int,
	b unsafe.Pointer, ldb int, beta float32, c *float32, ldc int) {
	multiplyDotsPortable(s, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

func pack(level int, s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k int) {
	packPortable(s, dst, columns, b, ldb, width, k)
}

func packTransposed(level int, s storage, dst *float32, columns int, b unsafe.Pointer, ldb, width, k int) {
	packTransposedPortable(s, dst, columns, b, ldb, width, k)
}

// placeRows: there is no kernel that multiplies by b as it lies.
func placeRows(int) (rows, columns, unit int) { return 0, 0, 0 }

func multiplyRows(level int, s storage, m, width, k int, alpha float32, a *float32, lda int,
	b unsafe.Pointer, ldb int, beta float32, c *float32, ldc int) {
	panic("simd: no product with rows as they lie")
}
