package cpu

import (
	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels/formats"
)

// orderedRows is about how many rows are moved into another order of columns at once.
const orderedRows = 256

// inParts runs f with parts of m rows and memory for their numbers, of a width. All parts have more than half of orderedRows,
// unless there are fewer rows, so that they are multiplied alike.
func inParts(m, width int, f func(x []float32, from, to int)) {
	n := (m + orderedRows - 1) / orderedRows
	for i := range n {
		from, to := i*m/n, (i+1)*m/n
		with((to-from)*width, func(s *buffer) { f(s.takeFloats((to-from)*width), from, to) })
	}
}

// orderedNT is simd.GemmNTBlocks of a matrix whose columns lie in an order: the columns of a are copied into it first, which is
// one number moved for n products.
func orderedNT(m, n, k int, alpha float32, a []float32, lda int, f *formats.Format, b []byte, order []int32, how simd.Rounding, beta float32, c []float32, ldc int) {
	inParts(m, k, func(x []float32, from, to int) {
		parallel.Tasks(to-from, k, func(i int) {
			row, given := x[i*k:][:k], a[(from+i)*lda:][:k]
			for j, column := range order {
				row[j] = given[column]
			}
		})
		simd.GemmNTBlocks(to-from, n, k, alpha, x, k, &f.Blocks, b, how, beta, c[from*ldc:], ldc)
	})
}

// orderedNN is simd.GemmNNBlocks of such a matrix, whose results are copied back.
func orderedNN(m, n, k int, alpha float32, a []float32, lda int, f *formats.Format, b []byte, order []int32, how simd.Rounding, beta float32, c []float32, ldc int) {
	inParts(m, n, func(y []float32, from, to int) {
		simd.GemmNNBlocks(to-from, n, k, alpha, a[from*lda:], lda, &f.Blocks, b, how, 0, y, n)
		parallel.Tasks(to-from, n, func(i int) {
			row, result := y[i*n:][:n], c[(from+i)*ldc:][:n]
			for j, column := range order {
				x := row[j]
				if beta != 0 {
					x += beta * result[column]
				}
				result[column] = x
			}
		})
	})
}
