//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"

	"glimpse/kernels"
)

var _ = kernelsOf("pairs",
	"copy_pairs_f32", "copy_pairs_bf16",
)

func (b *cuda) CopyPairs(dst []kernels.KV, k, v *kernels.Tensor) {
	const op = "CopyPairs"
	kernels.CheckCopyPairs(dst, k, v)
	b.do(op, func() {
		t := dst[0].K.DType
		name := map[kernels.DType]string{kernels.F32: "copy_pairs_f32", kernels.BF16: "copy_pairs_bf16"}[t]
		if name == "" {
			panic(fmt.Sprintf("kernels: %s into %s", op, t))
		}
		heads := len(dst)
		to := make([]uint64, 2*heads)
		for h, kv := range dst {
			to[h], to[heads+h] = uint64(b.at(op, kv.K, t)), uint64(b.at(op, kv.V, t))
		}
		rows, dim := k.Shape[0], k.Shape[2]
		b.launch(name, [3]int{rows, blocks(heads*blocks(dim, 8), elementThreads), 1}, elementThreads, 0, upload(b, op, to), b.f32(op, k), b.f32(op, v), heads, dim)
	})
	runtime.KeepAlive([]*kernels.Tensor{k, v})
	runtime.KeepAlive(dst)
}
