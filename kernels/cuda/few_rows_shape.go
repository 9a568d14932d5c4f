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
// every row of a weight of numbers begins at a multiple of 16 bytes.
func takesDecodeLinear(m, k int, w *kernels.Tensor) bool {
	if _, ok := w.DType.Format(); ok {
		return m <= maxBlockRows && k > 0
	}
	return m <= maxDecodeRows && k > 0 && k*w.DType.Size()%16 == 0 && (w.DType == kernels.F32 || w.DType == kernels.BF16 || w.DType == kernels.F16)
}

// TakesDecodeLinears tells that the layers have shapes and types of decode linears.
func TakesDecodeLinears(x *kernels.Tensor, linears []kernels.LinearRows) bool {
	if x.DType == kernels.BF16 || len(linears) == 0 || len(linears) > maxLinears {
		return false
	}
	for _, l := range linears {
		if !takesDecodeLinear(x.Dim0(), x.Width(), l.Weight) || l.Weight.DType != linears[0].Weight.DType {
			return false
		}
	}
	return true
}
