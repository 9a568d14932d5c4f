//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"gorgonia.org/cu"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"
)

var _ = kernelsOf("f16", "largest_bf16", "scale_f16")

// f16Product multiplies rows x in BF16 by a weight in F16: as F16 without a common power of two, since x may lie
// outside of its range.
func (b *cuda) f16Product(op string, g gemm, y, x cu.DevicePtr, w *kernels.Tensor, alpha, beta float64) {
	n := g.m * g.k
	factors := b.temporary(op, f16Scratch(g.m, g.k))
	largest, scaled := factors+2*4, factors+f16Begin
	parts := min(f16Parts, blocks(n, f16Span))
	b.launch("largest_bf16", [3]int{parts, 1, 1}, elementThreads, 0, largest, x, size(n))
	b.launch("scale_f16", [3]int{blocks(n, f16Span), 1, 1}, elementThreads, 0, scaled, factors, x, largest, parts, float32(alpha), float32(beta), size(n))
	p := g.columnMajor(cudadriver.F16)
	p.DeviceFactors = true
	b.multiplyBy(op, p, y, b.address(op, w), scaled, cudadriver.Factors{Alpha: float32(alpha), Beta: float32(beta), Device: factors})
}
