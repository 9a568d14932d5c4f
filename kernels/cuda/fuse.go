//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"glimpse/kernels"
)

func (b *cuda) AddRMSNorm(y, x, delta, w *kernels.Tensor, eps float64) {
	const op = "AddRMSNorm"
	kernels.CheckNorm(op, x, w, y, delta)
	if b.decodeNorm(op, y, x, delta, w, eps) {
		return
	}
	b.norm(op, "add_rms_norm", w.Len(), eps, y, x, delta, w)
}

func (b *cuda) AddLayerNorm(y, x, delta, w, bias *kernels.Tensor, eps float64) {
	const op = "AddLayerNorm"
	kernels.CheckAddLayerNorm(y, x, delta, w, bias)
	b.norm(op, "add_layer_norm", w.Len(), eps, y, x, delta, w, bias)
}
