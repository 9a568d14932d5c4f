package model

import (
	"fmt"
)

func init() {
	Families.Add("Qwen2ForCausalLM", Family{
		Doc:     "Qwen2 and Qwen2.5: biases on queries, keys and values",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		ParseConfig: decoderFamily(qwenDefaults, func(c *Config, d *decoderConfig) error {
			c.layout = decoderLayout{qkvBias: true}
			return d.qwenWindow(c)
		}),
	})
}

// qwenDefaults are the defaults of transformers for Qwen2 and Qwen3.
func qwenDefaults() decoderConfig {
	return decoderConfig{
		HiddenSize: 4096, NumHiddenLayers: 32, NumAttentionHeads: 32, NumKeyValueHeads: new(32), IntermediateSize: 22016,
		VocabSize: 151936, MaxPositionEmbeddings: 32768, RMSNormEps: 1e-6,
		SlidingWindow: new(4096), MaxWindowLayers: new(28),
	}
}

// qwenWindow sets the sliding windows of Qwen2 and Qwen3, which are off unless
// use_sliding_window is true and then hold from layer max_window_layers on. A
// sliding_window of null is none even then.
func (d *decoderConfig) qwenWindow(c *Config) error {
	if !isTrue(d.UseSlidingWindow) || d.SlidingWindow == nil {
		return d.slidingLayers(c, nil, 0)
	}
	if d.MaxWindowLayers == nil {
		return fmt.Errorf("max_window_layers: got null, want a number")
	}
	if *d.MaxWindowLayers < 0 {
		return fmt.Errorf("max_window_layers: got %d, want at least 0", *d.MaxWindowLayers)
	}
	return d.slidingLayers(c, d.SlidingWindow, *d.MaxWindowLayers)
}
