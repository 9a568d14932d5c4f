package kernels_test

import (
	"fmt"
	"testing"

	"glimpse/kernels"
)

// BenchmarkDecodeAttention is a token that attends to a long cache: the bytes of keys and values a second.
func BenchmarkDecodeAttention(b *testing.B) {
	on, err := kernels.Open("cpu")
	if err != nil {
		b.Fatal(err)
	}
	for _, shape := range []struct{ heads, kvHeads, dim int }{{14, 2, 64}, {9, 3, 64}, {32, 8, 128}, {8, 8, 128}} {
		for _, name := range []string{"F32", "BF16", "Q8_0"} {
			d, err := kernels.ParseStored(name)
			if err != nil {
				b.Fatal(err)
			}
			for _, entries := range []int{1024, 16384} {
				b.Run(fmt.Sprintf("%dof%dx%d/%s/%d", shape.heads, shape.kvHeads, shape.dim, name, entries), func(b *testing.B) {
					a := kernels.Attend{Q: ramp(1, shape.heads, shape.dim), Scale: 0.125, Positions: []int32{int32(entries)}}
					bytes := 0
					rows := ramp(entries, shape.kvHeads, shape.dim)
					for range shape.kvHeads {
						a.Past = append(a.Past, kernels.KV{K: on.Alloc(d, entries, shape.dim), V: on.Alloc(d.OfValues(), entries, shape.dim)})
						bytes += 2 * d.Bytes(entries*shape.dim)
					}
					on.CopyPairs(a.Past, rows, rows)
					out := on.Alloc(kernels.F32, 1, shape.heads*shape.dim)
					b.SetBytes(int64(bytes))
					for b.Loop() {
						on.Attention(out, nil, &a)
					}
				})
			}
		}
	}
}

func ramp(shape ...int) *kernels.Tensor {
	x := kernels.NewTensor(kernels.F32, shape...)
	for i := range x.F32() {
		x.F32()[i] = float32(i*7919%1013)/1013 - 0.5
	}
	return x
}
