//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"runtime"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

// RoundsToBF16 implements Products.
func (b *cuda) RoundsToBF16(rows int, w *kernels.Tensor) bool { return RoundsBy(rows, w) }

// rounding is the address that an operation writes to, and which of its kernels does:
// name, or where y is in BF16 the one that rounds.
func (b *cuda) rounding(op, name string, y *kernels.Tensor) (kernel string, at cu.DevicePtr) {
	if y.DType == kernels.BF16 {
		return name + "_bf16", b.address(op, y)
	}
	return name, b.f32(op, y)
}

// activation is an elementwise operation whose result y may be in BF16.
func (b *cuda) activation(op, kernel string, y *kernels.Tensor, xs ...*kernels.Tensor) {
	n := y.Len()
	kernels.CheckLengths(op, y, xs...)
	b.do(op, func() {
		kernel, Y := b.rounding(op, kernel, y)
		args := []any{Y}
		for _, x := range xs {
			args = append(args, b.f32(op, x))
		}
		b.maps(kernel, n, append(args, size(n))...)
	})
	runtime.KeepAlive(append(xs, y))
}

// bf16Product is product of rows in BF16, which are taken for what they are.
func (b *cuda) bf16Product(op string, g gemm, y, x, w *kernels.Tensor, alpha, beta float64) {
	Y, X := b.f32(op, y), b.address(op, x)
	if w.DType != kernels.F32 {
		b.widenedProduct(op, g, Y, X, cudadriver.BF16, w, alpha, beta)
		return
	}
	n := g.m * g.k
	wide := b.temporary(op, 4*int64(n))
	b.each("from_bf16", n, wide, X, size(n))
	b.multiply(op, g.columnMajor(cudadriver.F32), Y, b.f32(op, w), wide, alpha, beta)
}
