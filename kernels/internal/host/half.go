package host

import (
	"fmt"

	"glimpse/kernels"
)

// Caches may be kept in bf16 whatever a backend computes in. What follows is how the
// backends on host memory do that: pairs are rounded as they enter a cache and widened
// to the compute type where attention reads them.

// Widened is a with its past in the compute type; a itself where it is. Values are
// widened only where they are read.
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
	if t.DType != kernels.BF16 || compute != kernels.F32 {
		y := kernels.NewTensor(compute, t.Shape...)
		kernels.Convert(y, t)
		return y
	}
	y := kernels.NewTensor(kernels.F32, t.Shape...)
	from, to := t.U16(), y.F32()
	Split(t.Len(), 1, func(i, j int) {
		for k, v := range from[i:j] {
			to[i+k] = kernels.BF16ToF32(v)
		}
	})
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
		for i := range dim {
			Y[r*dim+i] = kernels.F32ToBF16(float32(x.At((r*heads+h)*dim + i)))
		}
	}
	return true
}
