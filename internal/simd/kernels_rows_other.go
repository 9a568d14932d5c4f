//go:build !amd64

package simd

// chunkKernels: there is no such assembly for these processors.
func (f *Blocks) chunkKernels(m int) (k chunkKernels, ok bool) { return k, false }
