package host

import (
	"fmt"

	"glimpse/internal/simd"
	"glimpse/kernels"
)

// Caches may be kept in bf16 or in blocks whatever a backend computes in. What follows is how
// the backends on host memory do that: pairs are rounded as they enter a cache.

// Widened is a with its past in the compute type; a itself where it is. Values are
// widened only where they are read. For a backend whose products read what is stored there is no need.
func Widened(a *kernels.Attend, compute kernels.DType, values bool) *kernels.Attend {
	if len(a.Past) == 0 || a.Past[0].K.DType == compute {
		return a
	}
	w := *a
	w.Past = make([]kernels.KV, len(a.Past))
	for g, kv := range a.Past {
		w.Past[g] = kernels.KV{K: widenTensor(kv.K, compute), V: kv.V, Positions: kv.Positions, Bias: kv.Bias}
		if values {
			w.Past[g].V = widenTensor(kv.V, compute)
		}
	}
	return &w
}

func widenTensor(t *kernels.Tensor, compute kernels.DType) *kernels.Tensor {
	y := kernels.NewTensor(compute, t.Shape...)
	kernels.Convert(y, t)
	return y
}

// Copy, Gather and CopyHead fill a cache in a type that is not the compute type, too.

func (Base[T]) Copy(y, x *kernels.Tensor) {
	kernels.CheckCopy(y, x)
	if y.DType.Grouped() {
		y.KeepRows(x, kernels.Ascending(x.Dim0()), false)
		return
	}
	copy(y.Memory(), x.OnHost().Memory())
}

// Gather into the compute type may be of any.
func (b Base[T]) Gather(y, table *kernels.Tensor, ids []int32) {
	kernels.CheckGather(y, table, ids)
	w := table.Width()
	if y.DType == b.Compute() {
		Y := Of[T](y)
		for i, id := range ids {
			kernels.Read(Y[i*w:][:w], table, int(id)*w)
		}
		return
	}
	if y.DType != table.DType {
		panic(fmt.Sprintf("kernels: Gather of %s into %s", table.DType, y.DType))
	}
	if y.DType.Grouped() {
		y.KeepRows(table, ids, true)
		return
	}
	row, dst, src := y.DType.Bytes(w), y.Memory(), table.Memory()
	for i, id := range ids {
		copy(dst[i*row:][:row], src[int(id)*row:][:row])
	}
}

// CopyHead is of rows in the compute type.
func (b Base[T]) CopyHead(y, x *kernels.Tensor, h int) {
	kernels.CheckCopyHead(y, x, h)
	heads, dim := x.Shape[1], x.Shape[2]
	if y.DType == b.Compute() {
		Y, X := Of[T](y), Of[T](x)
		for r := range x.Shape[0] {
			copy(Y[r*dim:][:dim], X[(r*heads+h)*dim:][:dim])
		}
		return
	}
	f, blocks := y.DType.Format()
	wide := make([]float32, dim)
	if y.DType.Grouped() {
		all := make([]float32, 0, x.Shape[0]*dim)
		for r := range x.Shape[0] {
			kernels.Read(wide, x, (r*heads+h)*dim)
			all = append(all, wide...)
		}
		y.AppendRows(all)
		return
	}
	for r := range x.Shape[0] {
		row := wide
		if at := (r*heads + h) * dim; x.DType == kernels.F32 {
			row = x.F32()[at:][:dim]
		} else {
			kernels.Read(row, x, at)
		}
		if blocks {
			n := y.DType.Bytes(dim)
			f.Narrow(y.Memory()[r*n:][:n], row)
		} else {
			simd.NarrowBF16(y.U16()[r*dim:][:dim], row)
		}
	}
}
