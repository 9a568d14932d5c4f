package model

func init() {
	Families.Add("Olmo3ForCausalLM", Family{
		Doc:     "OLMo 3: OLMo 2 with windows in three of four layers, which are rotated without scaling",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		EOS:     []int32{50279},
		ParseConfig: decoderFamily(olmoDefaults, func(c *Config, d *decoderConfig) error {
			c.layout = olmoLayout(d)
			d.fullEvery(4)
			if err := d.slidingLayers(c, d.SlidingWindow, 0); err != nil {
				return err
			}
			keys, err := d.ropeKeys.forLayers("sliding_attention")
			if err != nil {
				return err
			}
			plain := *c
			if _, _, err := plain.setPlainRoPE(keys); err != nil {
				return err
			}
			c.rotateWindows(&plain.RoPE)
			return nil
		}),
	})
}
