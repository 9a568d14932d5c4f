//go:build gpu && linux && amd64

package kernels

// fuseVariable switches fused kernels off where it is 0.
const fuseVariable = "GLIMPSE_CUDA_FUSE"

func (b *cuda) AddRMSNorm(y, x, delta, w *Tensor, eps float64) {
	const op = "AddRMSNorm"
	checkNorm(op, x, w, y, delta)
	if !fuses() {
		b.Decomposed.AddRMSNorm(y, x, delta, w, eps)
		return
	}
	if b.fewNorm(op, y, x, delta, w, eps) {
		return
	}
	b.norm(op, "add_rms_norm", w.Len(), eps, y, x, delta, w)
}

func (b *cuda) AddLayerNorm(y, x, delta, w, bias *Tensor, eps float64) {
	const op = "AddLayerNorm"
	checkAddLayerNorm(y, x, delta, w, bias)
	if !fuses() {
		b.Decomposed.AddLayerNorm(y, x, delta, w, bias, eps)
		return
	}
	b.norm(op, "add_layer_norm", w.Len(), eps, y, x, delta, w, bias)
}
