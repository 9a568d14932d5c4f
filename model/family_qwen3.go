package model

import "encoding/json"

func init() {
	Families.Add("Qwen3ForCausalLM", Family{
		Doc:     "Qwen3, dense: norms on the queries and keys of every head",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := qwenDefaults()
			d.HeadDim = new(128) // whatever hidden_size is
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			c.layout = decoderLayout{qkvBias: isTrue(d.AttentionBias), outputBias: isTrue(d.AttentionBias), headNorms: eachHead}
			return c, d.qwenWindow(c)
		},
	})
}
