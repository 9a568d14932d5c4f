//go:build !amd64 && !arm64

package simd

// kernels: there are none for these processors, so that quantise is not called.
func (f *Blocks) kernels() *blockKernels { return &blockKernels{} }

func quantise(dst *byte, src *float32, records int, f *Blocks) {
	panic("simd: no products of quantised rows")
}
