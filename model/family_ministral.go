package model

func init() {
	Families.Add("MinistralForCausalLM", Family{
		Doc:     "Ministral 8B: windows in the layers that layer_types calls sliding",
		Checked: []Check{CheckLogits, CheckGradients},
		BOS:     []int32{1}, EOS: []int32{2},
		ParseConfig: decoderFamily(mistralDefaults, func(c *Config, d *decoderConfig) error {
			return d.slidingLayers(c, d.SlidingWindow, 0)
		}),
	})
}
