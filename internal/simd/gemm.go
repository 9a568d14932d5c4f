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
	checkGemmNT("GemmNT", m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	multiply(product{nt: true, storage: f32, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: ldb, c: unsafe.SliceData(c), ldc: ldc})
}

// GemmNTBF16 is [GemmNT] with b in bfloat16, of which the product may make pairs.
func GemmNTBF16(how Pairs, m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	checkGemmNT("GemmNTBF16", m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	multiply(product{nt: true, storage: bf16, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: ldb, c: unsafe.SliceData(c), ldc: ldc}.paired(how))
}

// GemmNTF16 is [GemmNT] with b in IEEE half precision.
func GemmNTF16(m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	checkGemmNT("GemmNTF16", m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	multiply(product{nt: true, storage: f16, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: ldb, c: unsafe.SliceData(c), ldc: ldc})
}

// GemmNN sets c [m, n] = alpha · a [m, k] · b [k, n] + beta · c.
func GemmNN(m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	checkGemmNN("GemmNN", m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	multiply(product{storage: f32, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: ldb, c: unsafe.SliceData(c), ldc: ldc})
}

// GemmNNBF16 is [GemmNN] with b in bfloat16, of which the product may make pairs.
func GemmNNBF16(how Pairs, m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	checkGemmNN("GemmNNBF16", m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	multiply(product{storage: bf16, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: ldb, c: unsafe.SliceData(c), ldc: ldc}.paired(how))
}

// GemmNNF16 is [GemmNN] with b in IEEE half precision.
func GemmNNF16(m, n, k int, alpha float32, a []float32, lda int, b []uint16, ldb int, beta float32, c []float32, ldc int) {
	checkGemmNN("GemmNNF16", m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	multiply(product{storage: f16, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: ldb, c: unsafe.SliceData(c), ldc: ldc})
}

// GemmTN sets c [m, n] = alpha · a [k, m]ᵀ · b [k, n] + beta · c.
func GemmTN(m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	checkShape("GemmTN", m, n, k)
	checkMatrix("GemmTN", "a", len(a), k, m, lda)
	checkMatrix("GemmTN", "b", len(b), k, n, ldb)
	checkMatrix("GemmTN", "c", len(c), m, n, ldc)
	multiply(product{tn: true, storage: f32, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: unsafe.SliceData(a), lda: lda, b: unsafe.Pointer(unsafe.SliceData(b)), ldb: ldb, c: unsafe.SliceData(c), ldc: ldc})
}

func checkGemmNT(op string, m, n, k, lenA, lda, lenB, ldb, lenC, ldc int) {
	checkShape(op, m, n, k)
	checkMatrix(op, "a", lenA, m, k, lda)
	checkMatrix(op, "b", lenB, n, k, ldb)
	checkMatrix(op, "c", lenC, m, n, ldc)
}

func checkGemmNN(op string, m, n, k, lenA, lda, lenB, ldb, lenC, ldc int) {
	checkShape(op, m, n, k)
	checkMatrix(op, "a", lenA, m, k, lda)
	checkMatrix(op, "b", lenB, k, n, ldb)
	checkMatrix(op, "c", lenC, m, n, ldc)
}
