package model

import "encoding/json"

func init() {
	Families.Add("Qwen3ForCausalLM", Family{
		Doc: "Qwen3, dense: norms on the queries and keys of every head",
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			headDim := 128 // transformers' default, whatever hidden_size is
			d := decoderConfig{HeadDim: &headDim}
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			c.AttentionBias = d.AttentionBias
			return c, d.qwenWindow(c)
		},
		Bind: func(c *Config, b *Binder) *Network {
			return decoderLayout{qkvBias: c.AttentionBias, outputBias: c.AttentionBias, headNorms: true}.bind(c, b)
		},
	})
}
