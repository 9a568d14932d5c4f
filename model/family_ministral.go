package model

import "encoding/json"

func init() {
	Families.Add("MinistralForCausalLM", Family{
		Doc:     "Ministral 8B: windows in the layers that layer_types calls sliding",
		Checked: []Check{CheckLogits, CheckGradients},
		BOS:     []int32{1}, EOS: []int32{2},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := mistralDefaults()
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			c.layout = decoderLayout{}
			return c, d.slidingLayers(c, d.SlidingWindow, 0)
		},
	})
}
