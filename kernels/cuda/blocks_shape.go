package cuda

import (
	"slices"
	"strings"

	"glimpse/kernels"
)

// maxBlockRows is the most rows that are multiplied by blocks as they are.
const maxBlockRows = 16

// keptFormats are the formats of weights that stay as they are, as in few_blocks.cu and
// blocks.cu.
var keptFormats = []string{
	"E4M3_BF16", "E4M3_F32", "E2M1_E8M0", "MXFP4", "I4_BF16", "I4_F16", "I8_BF16", "I8_F16",
	"Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0",
}

// As in blocks.h.
const (
	halfScales = 1 << iota
	roundedBlocks
	unsignedZeros
)

// blockKernel is what the kernels for a format are called by, and what it differs in from others that they are for.
func blockKernel(format string) (name string, like int) {
	switch format {
	case "Q8_0":
		return "q8_0", halfScales
	case "I8_F16":
		return "q8_0", halfScales | roundedBlocks
	case "I8_BF16":
		return "q8_0", 0
	case "I4_F16":
		return "i4", halfScales | roundedBlocks
	case "I4_BF16":
		return "i4", 0
	case "MXFP4":
		return "e2m1_e8m0", unsignedZeros
	}
	return strings.ToLower(format), 0
}

// OrderScratch is the temporary memory of so many rows that meet blocks as these lie, whose order is another than the matrix's.
func OrderScratch(rows int, w *kernels.Tensor) int64 {
	if w.Order() == nil {
		return 0
	}
	return 4 * int64(rows) * int64(w.Width())
}

// Placed is the type in which a device holds tensors of a type: BF16 of blocks without kernels.
func Placed(d kernels.DType) kernels.DType {
	if f, ok := d.Format(); ok && slices.Contains(keptFormats, f.Name) {
		return d
	}
	return d.Numbers()
}

// widenedBytes is the memory of weights that are widened at once.
var widenedBytes = 64 << 20

// widenedSize is what an element of a weight takes that is widened for rows in BF16 or in float32, 0 where it is not.
func widenedSize(d kernels.DType, half bool) int {
	if _, blocks := d.Format(); blocks {
		return 2
	}
	if d == kernels.F16 && !half {
		return 4
	}
	return 0
}

// widenedRows is the number of a weight's rows of so many elements that are widened at once.
func widenedRows(rows, width, element int) int {
	return min(rows, max(1, widenedBytes/element/max(1, width)))
}
