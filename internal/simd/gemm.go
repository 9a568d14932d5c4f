package simd

import "unsafe"

// The products of this file take matrices as slices with row strides in elements.
// They panic if a size is negative, a stride is smaller than its row, or a slice is
// too short. With beta 0, c is written without being read and may hold anything,
// NaN included. A size of 0 is allowed; k = 0 leaves beta·c. c must not overlap a or
// b. Large products use all threads of internal/parallel; inside one of its tasks
// they run on the calling goroutine.

// GemmNT sets c [m, n] = alpha · a [m, k] · b [n, k]ᵀ + beta · c. For up to 16 rows
// of a it reads b once, in place.
func GemmNT(m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	gemm("GemmNT", product{nt: true, storage: f32, m: m, n: n, k: k, alpha: alpha, beta: beta, lda: lda, ldb: ldb, ldc: ldc}, Exact, a, b, c)
}

// GemmNTBF16 is [GemmNT] with b in bfloat16; the product may multiply it in pairs.
func GemmNTBF16(how Rounding, m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	gemm("GemmNTBF16", product{nt: true, storage: bf16, m: m, n: n, k: k, alpha: alpha, beta: beta, lda: lda, ldb: ldb, ldc: ldc}, how, a, b, c)
}

// GemmNTF16 is [GemmNT] with b in IEEE half precision.
func GemmNTF16(m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	gemm("GemmNTF16", product{nt: true, storage: f16, m: m, n: n, k: k, alpha: alpha, beta: beta, lda: lda, ldb: ldb, ldc: ldc}, Exact, a, b, c)
}

// GemmNN sets c [m, n] = alpha · a [m, k] · b [k, n] + beta · c.
func GemmNN(m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	gemm("GemmNN", product{storage: f32, m: m, n: n, k: k, alpha: alpha, beta: beta, lda: lda, ldb: ldb, ldc: ldc}, Exact, a, b, c)
}

// GemmNNBF16 is [GemmNN] with b in bfloat16; the product may multiply it in pairs.
func GemmNNBF16(how Rounding, m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	gemm("GemmNNBF16", product{storage: bf16, m: m, n: n, k: k, alpha: alpha, beta: beta, lda: lda, ldb: ldb, ldc: ldc}, how, a, b, c)
}

// GemmNNF16 is [GemmNN] with b in IEEE half precision.
func GemmNNF16(m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	gemm("GemmNNF16", product{storage: f16, m: m, n: n, k: k, alpha: alpha, beta: beta, lda: lda, ldb: ldb, ldc: ldc}, Exact, a, b, c)
}

// GemmTN sets c [m, n] = alpha · a [k, m]ᵀ · b [k, n] + beta · c.
func GemmTN(m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	gemm("GemmTN", product{tn: true, storage: f32, m: m, n: n, k: k, alpha: alpha, beta: beta, lda: lda, ldb: ldb, ldc: ldc}, Exact, a, b, c)
}

// gemm checks that the matrices are of p's sizes, and multiplies them.
func gemm[E float32 | uint16](op string, p product, how Rounding, a []float32, b []E, c []float32) {
	checkShape(op, p.m, p.n, p.k)
	rowsA, columnsA, rowsB, columnsB := p.m, p.k, p.k, p.n
	if p.tn {
		rowsA, columnsA = columnsA, rowsA
	}
	if p.nt {
		rowsB, columnsB = columnsB, rowsB
	}
	checkMatrix(op, "a", len(a), rowsA, columnsA, p.lda)
	checkMatrix(op, "b", len(b), rowsB, columnsB, p.ldb)
	checkMatrix(op, "c", len(c), p.m, p.n, p.ldc)
	p.a, p.b, p.c = unsafe.SliceData(a), unsafe.Pointer(unsafe.SliceData(b)), unsafe.SliceData(c)
	multiply(p.paired(how))
}
