package cuda

import (
	"slices"

	"glimpse/kernels"
)

// maxBlockRows is the most rows that are multiplied by blocks as they are.
const maxBlockRows = 16

// keptFormats are the formats of weights that stay as they are: those of few_blocks.cu and
// blocks.cu.
var keptFormats = []string{"Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0"}

// Placed is the type in which a device holds tensors of a type: BF16 of blocks without kernels.
func Placed(d kernels.DType) kernels.DType {
	if f, ok := d.Format(); ok && slices.Contains(keptFormats, f.Name) {
		return d
	}
	return d.Numbers()
}

// widenedBytes is the memory of weights that are widened at once.
var widenedBytes = 64 << 20

// widenedSize is the size of an element of a weight that is widened, 0 where it is not.
func widenedSize(d kernels.DType) int {
	if _, blocks := d.Format(); blocks {
		return 2
	} else if d == kernels.F16 {
		return 4
	}
	return 0
}

// widenedRows is the number of a weight's rows of so many elements that are widened at once.
func widenedRows(rows, width, element int) int {
	return min(rows, max(1, widenedBytes/element/max(1, width)))
}
