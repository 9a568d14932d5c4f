package model

func init() {
	Families.Add("Qwen3ForCausalLM", Family{
		Doc:     "Qwen3, dense: norms on the queries and keys of every head",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		ParseConfig: decoderFamily(func() decoderConfig {
			d := qwenDefaults()
			d.HeadDim = new(128) // whatever hidden_size is
			return d
		}, func(c *Config, d *decoderConfig) error {
			c.layout = decoderLayout{qkvBias: isTrue(d.AttentionBias), outputBias: isTrue(d.AttentionBias), headNorms: eachHead}
			return d.qwenWindow(c)
		}),
	})
}
