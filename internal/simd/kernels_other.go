//go:build !amd64 && !arm64

package simd

import "unsafe"

var levelNames = [...]string{"portable"}

func detect() int { return portable }

func preferred(best int) int { return best }

func dot(x, y []float32) float32       { return dotPortable(x, y) }
func sum(x []float32) float32          { return sumPortable(x) }
func maximum(x []float32) float32      { return maxPortable(x) }
func maxInto(dst, src []float32)       { maxIntoPortable(dst, src) }
func axpy(a float32, x, y []float32)   { axpyPortable(a, x, y) }
func addScalar(a float32, x []float32) { addScalarPortable(a, x) }
func scale(a float32, x []float32)     { scalePortable(a, x) }
func addVectors(dst, x, y []float32)   { addPortable(dst, x, y) }
func mul(dst, x, y []float32)          { mulPortable(dst, x, y) }
func exp(dst, src []float32)           { expPortable(dst, src) }
func expSum(dst, src []float32, shift, floor float32) float32 {
	return expSumPortable(dst, src, shift, floor)
}
func addExpSub(dst, src, shift []float32, floor float32) { addExpSubPortable(dst, src, shift, floor) }
func log(dst, src []float32)                             { logPortable(dst, src) }
func siluMul(dst, gate, up []float32)                    { siluMulPortable(dst, gate, up) }
func widenBF16(dst []float32, src []uint16)              { widenBF16Portable(dst, src) }
func widenF16(dst []float32, src []uint16)               { widenF16Portable(dst, src) }
func narrowBF16(dst []uint16, src []float32)             { narrowBF16Portable(dst, src) }
func narrowF16(dst []uint16, src []float32)              { narrowF16Portable(dst, src) }

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
