package model

import (
	"encoding/json"
	"fmt"
)

func init() {
	Families.Add("Qwen2ForCausalLM", Family{
		Doc: "Qwen2 and Qwen2.5: biases on queries, keys and values",
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			var d decoderConfig
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			return c, d.qwenWindow(c)
		},
		Bind: func(c *Config, b *Binder) *Network { return decoderLayout{qkvBias: true}.bind(c, b) },
	})
}

// qwenWindow sets the sliding windows of Qwen2 and Qwen3, which are off unless
// use_sliding_window is true and then hold from layer max_window_layers on.
func (d *decoderConfig) qwenWindow(c *Config) error {
	window, first := 4096, 28 // transformers' defaults
	if d.SlidingWindow != nil {
		window = *d.SlidingWindow
	}
	if d.MaxWindowLayers != nil {
		first = *d.MaxWindowLayers
	}
	if first < 0 {
		return fmt.Errorf("max_window_layers: got %d, want at least 0", first)
	}
	if d.UseSlidingWindow == nil || !*d.UseSlidingWindow {
		return d.slidingLayers(c, nil, 0)
	}
	return d.slidingLayers(c, &window, first)
}
