package eviction

import (
	"math"

	"glimpse/model"
)

func init() {
	Policies.Add("knorm", Policy{
		Kind: "prefill", Doc: "the keys of lowest norm, without any attention", Source: "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression (Devoto et al. 2024, arXiv:2406.11430) §3",
		Scorer: true,
		New:    func(Settings, model.Adapter) (Method, error) { return knorm{}, nil },
	})
}

// knorm keeps the B entries of every head with the smallest ‖k_j‖₂ (Devoto et al.
// 2024 §3: keys of small norm get high attention). Rotations leave norms alone. The
// paper leaves some first layers alone; here all layers evict.
type knorm struct{}

func (knorm) Capture(Prompt) model.Capture { return model.Capture{} }

func (knorm) formula(Prompt, *model.Observation) (formula, bool) { return formula{keys: true}, true }

// Score is 1/(1 + ‖k‖₂), which falls with the norm and is never negative.
func (knorm) Score(dst [][]float32, _ Prompt, o *model.Observation) error {
	for h, kv := range o.Cache.View(o.Layer) {
		keys, width := kv.K.Float32s(), kv.K.Width()
		for j := range dst[h] {
			sum := 0.0
			for _, k := range keys[j*width : (j+1)*width] {
				sum += float64(k) * float64(k)
			}
			dst[h][j] = float32(1 / (1 + math.Sqrt(sum)))
		}
	}
	return nil
}
