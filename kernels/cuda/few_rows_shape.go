package cuda

import (
	"glimpse/kernels"
)

// maxFewRows is the most rows of a product that waits for its weights alone, whatever the
// device multiplies with: with more, tensor cores are worth splitting the rows for.
const maxFewRows = 8

// maxLinears is the most products of the same rows that are computed at once.
const maxLinears = 3

// fewRows tells that m rows meet a weight [n, k] without products of cuBLASLt: every row of
// the weight begins at 16 bytes.
func fewRows(m, k int, w *kernels.Tensor) bool {
	return m <= maxFewRows && k > 0 && k*w.DType.Size()%16 == 0 && (w.DType == kernels.F32 || w.DType == kernels.BF16 || w.DType == kernels.F16)
}

// TakesFew tells that the shapes and types of the layers are those of the kernels for few
// rows.
func TakesFew(x *kernels.Tensor, linears []kernels.LinearRows) bool {
	if x.DType == kernels.BF16 || len(linears) == 0 || len(linears) > maxLinears {
		return false
	}
	for _, l := range linears {
		if !fewRows(x.Dim0(), x.Width(), l.Weight) || l.Weight.DType != linears[0].Weight.DType {
			return false
		}
	}
	return true
}
