package kernels

// Fuser is a Backend that computes operations which follow each other in one kernel,
// with the bits that they have one by one.
type Fuser interface {
	// AddRMSNorm is AddRMSNorm on this backend.
	AddRMSNorm(y, x, delta, w *Tensor, eps float64)
	// AddLayerNorm is AddLayerNorm on this backend.
	AddLayerNorm(y, x, delta, w, bias *Tensor, eps float64)
}

// AddRMSNorm adds delta to x, both [rows, width], and writes RMSNorm of the sum to y:
// what comes between two blocks of a network. Where b is no Fuser it is Add and
// RMSNorm.
func AddRMSNorm(b Backend, y, x, delta, w *Tensor, eps float64) {
	checkNorm("AddRMSNorm", x, w, y, delta)
	if f, ok := b.(Fuser); ok {
		f.AddRMSNorm(y, x, delta, w, eps)
		return
	}
	b.Add(x, x, delta)
	b.RMSNorm(y, x, w, eps)
}

// AddLayerNorm is AddRMSNorm with LayerNorm instead.
func AddLayerNorm(b Backend, y, x, delta, w, bias *Tensor, eps float64) {
	checkAddLayerNorm(y, x, delta, w, bias)
	if f, ok := b.(Fuser); ok {
		f.AddLayerNorm(y, x, delta, w, bias, eps)
		return
	}
	b.Add(x, x, delta)
	b.LayerNorm(y, x, w, bias, eps)
}

func checkAddLayerNorm(y, x, delta, w, bias *Tensor) {
	checkNorm("AddLayerNorm", x, w, y, delta)
	checkLengths("AddLayerNorm", w, bias)
}
