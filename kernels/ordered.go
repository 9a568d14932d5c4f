package kernels

import "fmt"

// columnOrder is the order in which the columns of a matrix lie in memory.
type columnOrder struct {
	columns []int32
	placed  *Tensor // I32, a copy in the device memory that the matrix is in
}

// InOrder is t, a host tensor of blocks, whose rows hold at place j what belongs to column columns[j]: columns that
// share a scale lie next to each other in blocks, and need not in the matrix (act-order of GPTQ). The order, which names
// every column once, is kept and not copied; nil is that of the matrix. Numbers are read by their columns as of any
// tensor; Blocks and Memory are as they lie.
func (t *Tensor) InOrder(columns []int32) *Tensor {
	if columns == nil {
		return t
	}
	if _, blocks := t.DType.Format(); !blocks || t.block != nil || len(columns) != t.Width() {
		panic(fmt.Sprintf("kernels: order of %d columns of a %s tensor %v", len(columns), t.DType, t.Shape))
	}
	v := t.view(0, t.Len()).withShape(t.Shape)
	v.order = &columnOrder{columns: columns}
	return v
}

// PlacedOrder is the order of t, a tensor that a backend has placed, as I32 in the same memory; nil where it has none.
func (t *Tensor) PlacedOrder() *Tensor {
	if t.order == nil {
		return nil
	}
	return t.order.placed
}

// PlaceInOrder allocates what a host tensor takes on a device, and copies it and its order.
func PlaceInOrder(on Allocator, host *Tensor) *Tensor {
	t := on.Alloc(host.DType, host.Shape...)
	if order := host.Order(); order != nil {
		columns := NewTensor(I32, len(order))
		copy(columns.I32(), order)
		t.order = &columnOrder{order, on.Alloc(I32, len(order))}
		Convert(t.order.placed, columns)
	}
	Convert(t, host)
	return t
}

// sameOrder tells that two tensors' columns lie in the same order.
func sameOrder(a, b *Tensor) bool {
	return a.order == b.order || a.order != nil && b.order != nil && &a.order.columns[0] == &b.order.columns[0]
}

// Order is that of InOrder, or nil.
func (t *Tensor) Order() []int32 {
	if t.order == nil {
		return nil
	}
	return t.order.columns
}

// readOrdered is readBlocks by columns: rows in which the elements lie are widened.
func readOrdered[T Float](dst []T, t *Tensor, from int) {
	order, width := t.order.columns, t.Width()
	lies, row := make([]float32, width), make([]T, width)
	blocks, f := t.Blocks()
	for bytes := t.DType.Bytes(width); len(dst) > 0; {
		f.Decode(lies, blocks[from/width*bytes:][:bytes])
		for j, c := range order {
			row[c] = T(lies[j])
		}
		n := copy(dst, row[from%width:])
		dst, from = dst[n:], from+n
	}
}
