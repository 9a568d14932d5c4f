package model

import "encoding/json"

func init() {
	Families.Add("SeedOssForCausalLM", Family{
		Doc: "Seed-OSS 36B: biases on queries, keys and values",
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			headDim := 128 // transformers' default, whatever hidden_size is
			d := decoderConfig{HeadDim: &headDim, AttentionBias: true}
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			var own struct {
				OutputBias bool `json:"attention_out_bias"`
			}
			if err := json.Unmarshal(raw, &own); err != nil {
				return nil, err
			}
			c.AttentionBias, c.OutputBias, c.MLPBias = d.AttentionBias, own.OutputBias, d.MLPBias
			return c, nil
		},
		Bind: func(c *Config, b *Binder) *Network {
			return decoderLayout{qkvBias: c.AttentionBias, outputBias: c.OutputBias, mlpBias: c.MLPBias}.bind(c, b)
		},
	})
}
