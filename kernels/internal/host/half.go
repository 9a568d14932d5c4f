package host

import (
	"fmt"

	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// Caches may be kept in bf16 whatever a backend computes in. What follows is how the
// backends on host memory do that: pairs are rounded as they enter a cache.

// Widened is a with its past in the compute type; a itself where it is. Values are
// widened only where they are read. For a backend whose products read bf16 there is no need.
func Widened(a *kernels.Attend, compute kernels.DType, values bool) *kernels.Attend {
	if len(a.Past) == 0 || a.Past[0].K.DType == compute {
		return a
	}
	w := *a
	w.Past = make([]kernels.KV, len(a.Past))
	for g, kv := range a.Past {
		w.Past[g] = kernels.KV{K: widen(kv.K, compute), V: kv.V, Positions: kv.Positions}
		if values {
			w.Past[g].V = widen(kv.V, compute)
		}
	}
	return &w
}

func widen(t *kernels.Tensor, compute kernels.DType) *kernels.Tensor {
	y := kernels.NewTensor(compute, t.Shape...)
	kernels.Convert(y, t)
	return y
}

// CopyHalf, gatherHalf and copyHeadHalf are the operations that fill a cache in bf16.
// They do nothing and return false where y is of another type.
func CopyHalf(y, x *kernels.Tensor) bool {
	if y.DType != kernels.BF16 && x.DType != kernels.BF16 {
		return false
	}
	if y.DType != x.DType {
		panic(fmt.Sprintf("kernels: Copy of %s into %s", x.DType, y.DType))
	}
	copy(y.U16(), x.U16())
	return true
}

// GatherHalf is Gather into bfloat16; false where y is not.
func GatherHalf(y, table *kernels.Tensor, ids []int32) bool {
	if y.DType != kernels.BF16 {
		return false
	}
	if table.DType != kernels.BF16 {
		panic(fmt.Sprintf("kernels: Gather of a %s table into %s", table.DType, y.DType))
	}
	w := table.Width()
	for i, id := range ids {
		copy(y.U16()[i*w:][:w], table.U16()[int(id)*w:][:w])
	}
	return true
}

// CopyHeadHalf is CopyHead into bfloat16; false where y is not.
func CopyHeadHalf(y, x *kernels.Tensor, h int) bool {
	if y.DType != kernels.BF16 {
		return false
	}
	Y, heads, dim := y.U16(), x.Shape[1], x.Shape[2]
	for r := range x.Shape[0] {
		row := Y[r*dim:][:dim]
		if x.DType == kernels.F32 {
			simd.NarrowBF16(row, x.F32()[(r*heads+h)*dim:][:dim])
			continue
		}
		for i := range row {
			row[i] = formats.F32ToBF16(float32(x.At((r*heads+h)*dim + i)))
		}
	}
	return true
}
