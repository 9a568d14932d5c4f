package kernels

import (
	"glimpse/internal/parallel"
	"glimpse/internal/simd"
)

// Widened is a host tensor of blocks in BF16, rounded to nearest even, in memory of its own; t
// itself where it is one of numbers. All cores take part.
func Widened(t *Tensor) *Tensor {
	if _, ok := t.DType.Format(); !ok {
		return t
	}
	wide := NewTensor(BF16, t.Shape...)
	WidenTo(wide, t)
	return wide
}

// WidenTo sets wide, in BF16, to what Widened makes of t, which is of blocks and as long.
func WidenTo(wide, t *Tensor) {
	blocks, f := t.Blocks()
	n := t.Len() / f.Elems
	if order := t.Order(); order != nil {
		width, bytes := t.Width(), t.DType.Bytes(t.Width())
		parallel.Tasks(t.Dim0(), width, func(i int) {
			lies, row := make([]uint16, width), wide.U16()[i*width:][:width]
			f.Round(lies, blocks[i*bytes:][:bytes], simd.NarrowBF16)
			for j, c := range order {
				row[c] = lies[j]
			}
		})
		return
	}
	const task = 1 << 8 // blocks
	parallel.Tasks((n+task-1)/task, task*f.Elems, func(i int) {
		from, to := i*task, min(n, (i+1)*task)
		f.Round(wide.U16()[from*f.Elems:to*f.Elems], blocks[from*f.Bytes:to*f.Bytes], simd.NarrowBF16)
	})
}
