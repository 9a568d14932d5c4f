//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"slices"

	"gorgonia.org/cu"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"
)

// blockThread are the elements of a thread of the kernels of blocks.cu.
const blockThread = 8

var (
	_ = kernelsOf("blocks", append(blockKernels("widen_%s", "gather_%s"), "in_order")...)
	_ = kernelsOf("few_blocks", blockKernels("few_blocks_%s_8", "few_blocks_%s_16")...)
)

// blockKernels are names of kernels for every format.
func blockKernels(names ...string) (all []string) {
	for _, format := range keptFormats {
		of, _ := blockKernel(format)
		for _, name := range names {
			all = append(all, fmt.Sprintf(name, of))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// widenedProduct multiplies rows x, of cuBLASLt's type, by a weight in BF16, by one in F16, or by one that is widened some rows at
// a time: blocks to BF16, and F16 to float32 where x are.
func (b *cuda) widenedProduct(op string, g gemm, y, x cu.DevicePtr, xType int, w *kernels.Tensor, alpha, beta float64) {
	element := widenedSize(w.DType, xType == cudadriver.BF16)
	switch {
	case w.DType == kernels.BF16:
		b.multiply(op, g.columnMajor(xType), y, b.address(op, w), x, alpha, beta)
		return
	case element == 0:
		b.f16Product(op, g, y, x, w, alpha, beta)
		return
	}
	width := w.Width()
	step := widenedRows(g.weightRows, width, element)
	wide := b.temporary(op, int64(element*step)*int64(width))
	for from := 0; from < g.weightRows; from += step {
		rows := min(step, g.weightRows-from)
		b.widen(op, wide, w.Rows(from, from+rows))
		p, c, at := g.columnMajor(xType), y, x
		if g.transposed { // some columns of y
			p.M, c = rows, y+cu.DevicePtr(4*from)
		} else { // some terms of every sum
			p.K, at = rows, x+cu.DevicePtr(element*from) // x has the type of the widened weight
		}
		b.multiply(op, p, c, wide, at, alpha, beta)
		if !g.transposed {
			beta = 1
		}
	}
}

// widen writes a weight in blocks in BF16, or one of F16 in float32.
func (b *cuda) widen(op string, wide cu.DevicePtr, w *kernels.Tensor) {
	n := w.Len()
	if w.DType == kernels.F16 {
		b.each("from_f16", n, wide, b.address(op, w), size(n))
		return
	}
	name, like := blockKernel(w.DType.String())
	b.each("widen_"+name, n/blockThread, wide, b.address(op, w), b.placedOrder(op, w), size(n), size(w.Width()), like)
}

// placedOrder is the address of the order of a weight's columns, 0 where they lie in their own.
func (b *cuda) placedOrder(op string, w *kernels.Tensor) cu.DevicePtr {
	return b.at(op, w.PlacedOrder(), kernels.I32)
}

// inOrder is x [rows, width] in float32 as the columns of a weight lie.
func (b *cuda) inOrder(op string, x, w *kernels.Tensor) cu.DevicePtr {
	at := b.f32(op, x)
	if w.Order() == nil {
		return at
	}
	y := b.temporary(op, OrderScratch(x.Dim0(), w))
	b.each("in_order", x.Len(), y, at, b.placedOrder(op, w), size(x.Len()), size(x.Width()))
	return y
}

// gather queues the rows ids of a table as n numbers of float32.
func (b *cuda) gather(op string, y cu.DevicePtr, table *kernels.Tensor, ids cu.DevicePtr, n int) {
	name := map[kernels.DType]string{kernels.F32: "gather_f32", kernels.F64: "gather_f64", kernels.BF16: "gather_bf16", kernels.F16: "gather_f16"}[table.DType]
	if _, blocks := table.DType.Format(); blocks {
		name, like := blockKernel(table.DType.String())
		b.each("gather_"+name, n/blockThread, y, b.address(op, table), ids, b.placedOrder(op, table), size(n), size(table.Width()), like)
		return
	}
	if name == "" {
		panic(fmt.Sprintf("kernels: %s of a %s table", op, table.DType))
	}
	b.each(name, n, y, b.address(op, table), ids, size(n), size(table.Width()))
}
