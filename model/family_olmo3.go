package model

import "encoding/json"

func init() {
	Families.Add("Olmo3ForCausalLM", Family{
		Doc:     "OLMo 3: OLMo 2 with windows in three of four layers, which are rotated without scaling",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		EOS:     []int32{50279},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := olmoDefaults()
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			c.layout = olmoLayout(&d)
			if d.LayerTypes == nil {
				for l := range c.Layers {
					kind := "sliding_attention"
					if (l+1)%4 == 0 {
						kind = "full_attention"
					}
					d.LayerTypes = append(d.LayerTypes, kind)
				}
			}
			if err := d.slidingLayers(c, d.SlidingWindow, 0); err != nil {
				return nil, err
			}
			keys, err := d.ropeKeys.of("sliding_attention")
			if err != nil {
				return nil, err
			}
			plain := *c
			if _, _, err := plain.setPlainRoPE(keys); err != nil {
				return nil, err
			}
			c.LayerRoPE = make([]*RoPE, c.Layers)
			for l := range c.LayerRoPE {
				if c.Window(l) > 0 {
					c.LayerRoPE[l] = &plain.RoPE
				}
			}
			return c, nil
		},
	})
}
