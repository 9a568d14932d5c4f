package kernels

import "fmt"

// LowRankAdder is a Backend that updates rows by low-rank factors in fewer passes than two
// products.
type LowRankAdder interface {
	// AddLowRank computes y [rows, out] += scale · (x [rows, in] · a [rank, in]ᵀ) ·
	// b [out, rank]ᵀ. x may be in BF16.
	AddLowRank(y, x, a, b *Tensor, scale float64)
}

func checkAddLowRank(y, x, a, b *Tensor) {
	if a.Width() != x.Width() || b.Width() != a.Dim0() || y.Len() != x.Dim0()*b.Dim0() {
		panic(fmt.Sprintf("kernels: AddLowRank of %v by %v and %v into %v", x.Shape, a.Shape, b.Shape, y.Shape))
	}
}
