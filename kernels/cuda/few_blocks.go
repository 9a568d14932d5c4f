//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// fewBlocks is decodeLinears by weights in blocks.
func (b *cuda) fewBlocks(op string, x *kernels.Tensor, linears []kernels.LinearRows, gated bool, alpha, beta float64) {
	m, k, dtype := x.Dim0(), x.Width(), linears[0].Weight.DType
	format, _ := dtype.Format()
	name, like := blockKernel(dtype.String())
	rows := maxBlockRows
	if m <= rows/2 {
		rows /= 2
	}
	own, isGated := blockColumns, 0
	if gated {
		own, isGated = own/2, 1
	}
	blocks, most, shared := 0, 0, 0
	args := make([]any, 0, 5*maxLinears+6)
	for i, l := range linears {
		n, ways := l.Weight.Dim0(), 0
		ways, shared = blockWays(n, k, format)
		most = max(most, ways)
		if i == 0 || !gated {
			blocks += (n + own - 1) / own
		}
		args = append(args, b.address(op, l.Weight), b.f32(op, l.Bias), b.f32(op, l.Y), n, ways)
	}
	for range maxLinears - len(linears) {
		args = append(args, cu.DevicePtr(0), cu.DevicePtr(0), cu.DevicePtr(0), 0, 0)
	}
	args = append(args, b.inOrder(op, x, linears[0].Weight), m, k, float32(alpha), float32(beta), isGated, like)
	b.launch(fmt.Sprintf("few_blocks_%s_%d", name, rows), [3]int{blocks, 1, 1}, 32*most, shared*most, args...)
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
		pieces = (bytes + 14 + f.Bytes%2 + 15) / 16
	}
	return elems, 16 * (pieces | 1)
}

// blockWays is the number of warps that share the sums of a weight [n, k] in blocks, and the
// shared memory of each: a thousand warps or more, none without elements, and no more
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
