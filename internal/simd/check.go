package simd

import "fmt"

// The checks are small enough to be inlined; the panics are not part of them.

func checkEqual(op, name string, got, want int) {
	if got != want {
		panicLength(op, name, got, want)
	}
}

func panicLength(op, name string, got, want int) {
	panic(fmt.Sprintf("simd.%s: length of %s is %d, want %d", op, name, got, want))
}

// checkMatrix panics unless a slice of length n holds rows × cols elements with the
// given row stride.
func checkMatrix(op, name string, n, rows, cols, stride int) {
	if stride < cols {
		panic(fmt.Sprintf("simd.%s: row stride of %s is %d, want at least its %d columns", op, name, stride, cols))
	}
	// The division first: the product may overflow.
	if rows > 0 && cols > 0 && ((rows-1) > n/stride || (rows-1)*stride+cols > n) {
		panic(fmt.Sprintf("simd.%s: length of %s is %d, want at least %d×%d with row stride %d",
			op, name, n, rows, cols, stride))
	}
}

func checkShape(op string, m, n, k int) {
	if m < 0 || n < 0 || k < 0 {
		panic(fmt.Sprintf("simd.%s: shape m=%d n=%d k=%d, want none negative", op, m, n, k))
	}
}
