package cuda

import (
	"slices"

	"glimpse/kernels"
	"glimpse/kernels/formats"
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

// As in few_blocks.cu.
const (
	blockColumns = 32
	blockStages  = 2
)

// blockChunk is how a warp copies a row of blocks: so many elements at once, into so many bytes.
func blockChunk(f *formats.Format) (elems, stride int) {
	if elems = 128; f.Elems == 256 || f.Bytes <= 20 {
		elems = 256
	}
	bytes := elems / f.Elems * f.Bytes
	pieces := bytes / 16
	if f.Bytes%16 != 0 {
		pieces = (bytes + 14 + 15) / 16
	}
	return elems, 16 * (pieces | 1)
}

// blockWays is the number of warps that share the sums of a weight [n, k] in blocks, and the
// shared memory of each: a thousand warps or more, of which none is without elements, and no more
// shared memory than every device has. It depends on the weight alone, as decodeLinearSplit.
func blockWays(n, k int, f *formats.Format) (ways, shared int) {
	const most = 96 << 10
	elems, stride := blockChunk(f)
	shared = blockStages * blockColumns * stride
	ways = 8
	for ways > 1 && (n*ways >= 65536 || (ways-1)*elems >= k || ways*shared > most) {
		ways /= 2
	}
	return ways, shared
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
