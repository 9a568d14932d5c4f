//go:build gpu && linux && amd64

package kernels

// thinProduct is product for shapes that are thin, with weights in F32 and rows in F32 or
// BF16.
func (b *cuda) thinProduct(op string, g gemm, y, x, w *Tensor, alpha, beta float64) {
	name := "thin_matmul"
	if g.transposed {
		name = "thin_linear"
	}
	X := b.address(op, x)
	if x.DType == BF16 {
		name += "_bf16"
	} else {
		name, X = name+"_f32", b.f32(op, x)
	}
	splits := (g.k + thinDepth - 1) / thinDepth
	part := b.temporary(op, thinScratch(g.m, g.n, g.k))
	grid := [3]int{splits, (g.m + thinRows - 1) / thinRows, (g.n + thinColumns - 1) / thinColumns}
	b.launch(name, grid, thinRows*thinColumns, 0, part, X, b.f32(op, w), g.m, g.n, g.k)
	b.each("thin_merge", g.m*g.n, b.f32(op, y), part, splits, float32(alpha), float32(beta), size(g.m*g.n))
}
