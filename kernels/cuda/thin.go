//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"runtime"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("thin",
	"thin_linear_f32", "thin_linear_bf16", "thin_matmul_f32", "thin_matmul_bf16", "thin_merge", "low_rank_update",
)

// splitKProduct is product split along k, for shapes of SplitsK: weights in F32, rows in F32
// or BF16.
func (b *cuda) splitKProduct(op string, g gemm, y, x, w *kernels.Tensor, alpha, beta float64) {
	part, splits := b.splitKPartials(op, g, x, w)
	b.each("thin_merge", g.m*g.n, b.f32(op, y), part, splits, float32(alpha), float32(beta), size(g.m*g.n))
}

// splitKPartials launches the partial products [splits, m, n], which are still to be merged.
func (b *cuda) splitKPartials(op string, g gemm, x, w *kernels.Tensor) (part cu.DevicePtr, splits int) {
	name := "thin_matmul"
	if g.transposed {
		name = "thin_linear"
	}
	X := b.address(op, x)
	if x.DType == kernels.BF16 {
		name += "_bf16"
	} else {
		name, X = name+"_f32", b.f32(op, x)
	}
	splits = (g.k + splitKDepth - 1) / splitKDepth
	part = b.temporary(op, SplitKScratch(g.m, g.n, g.k))
	grid := [3]int{splits, (g.m + splitKRows - 1) / splitKRows, (g.n + splitKColumns - 1) / splitKColumns}
	b.launch(name, grid, splitKRows*splitKColumns, 0, part, X, b.f32(op, w), g.m, g.n, g.k)
	return part, splits
}

func (b *cuda) AddLowRank(y, x, w1, w2 *kernels.Tensor, scale float64, temp kernels.Allocator) {
	const op = "AddLowRank"
	kernels.CheckAddLowRank(y, x, w1, w2)
	m, k, rank, n := x.Dim0(), x.Width(), w1.Dim0(), w2.Dim0()
	if m*rank > SplitKResults {
		b.Decomposed.AddLowRank(y, x, w1, w2, scale, temp)
		return
	}
	b.do(op, func() {
		part, splits := b.splitKPartials(op, gemm{m: m, n: rank, k: k, transposed: true}, x, w1)
		b.launch("low_rank_update", [3]int{(n + updateColumns - 1) / updateColumns, 1, 1}, updateThreads, 0,
			b.f32(op, y), part, b.f32(op, w2), m, n, rank, splits, float32(scale))
	})
	runtime.KeepAlive([]*kernels.Tensor{y, x, w1, w2})
}
