package model

import "encoding/json"

func init() {
	Families.Add("LlamaForCausalLM", Family{
		Doc: "Llama 2, 3, 3.1 and 3.2, CodeLlama, LongChat, Vicuna",
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			var d decoderConfig
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			c.AttentionBias, c.MLPBias = d.AttentionBias, d.MLPBias
			return c, nil
		},
		Bind: func(c *Config, b *Binder) *Network {
			return decoderLayout{qkvBias: c.AttentionBias, outputBias: c.AttentionBias, mlpBias: c.MLPBias}.bind(c, b)
		},
	})
}
