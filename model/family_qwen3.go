package model

import "encoding/json"

func init() {
	Families.Add("Qwen3ForCausalLM", Family{
		Doc: "Qwen3, dense: norms on the queries and keys of every head",
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := qwenDefaults()
			d.HeadDim = new(128) // whatever hidden_size is
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			c.AttentionBias = isTrue(d.AttentionBias)
			return c, d.qwenWindow(c)
		},
		Bind: func(c *Config, b *Binder) *Network {
			return decoderLayout{qkvBias: c.AttentionBias, outputBias: c.AttentionBias, headNorms: true}.bind(c, b)
		},
	})
}
