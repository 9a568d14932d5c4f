package cuda

import (
	"glimpse/kernels"
)

// maxDecodeRows is the most rows of a product that waits for its weights alone, whatever the
// device multiplies with: with more, tensor cores are worth splitting the rows for.
const maxDecodeRows = 8

// maxLinears is the most products of the same rows that are computed at once.
const maxLinears = 3

// takesDecodeLinear tells that m rows and a weight [n, k] are multiplied without cuBLASLt:
// every row of a weight of numbers begins at a multiple of 16 bytes, and of blocks of an odd number of bytes
// at a multiple of 4.
func takesDecodeLinear(m, k int, w *kernels.Tensor) bool {
	if f, ok := w.DType.Format(); ok {
		return m <= maxBlockRows && k > 0 && (f.Bytes%2 == 0 || w.DType.Bytes(k)%4 == 0)
	}
	return m <= maxDecodeRows && k > 0 && k*w.DType.Size()%16 == 0 && (w.DType == kernels.F32 || w.DType == kernels.BF16 || w.DType == kernels.F16)
}

// TakesDecodeLinears tells that the layers have shapes and types of decode linears.
func TakesDecodeLinears(x *kernels.Tensor, linears []kernels.LinearRows) bool {
	if x.DType == kernels.BF16 || len(linears) == 0 || len(linears) > maxLinears {
		return false
	}
	for _, l := range linears {
		if !takesDecodeLinear(x.Dim0(), x.Width(), l.Weight) || l.Weight.DType != linears[0].Weight.DType || l.Weight.Order() != nil && len(linears) > 1 {
			return false
		}
	}
	return true
}
