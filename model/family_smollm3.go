package model

import (
	"encoding/json"
	"fmt"
)

func init() {
	Families.Add("SmolLM3ForCausalLM", Family{
		Doc:     "SmolLM3: layers without rotation",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		BOS:     []int32{128000}, EOS: []int32{128001},
		ParseConfig: parseSmolLM3,
	})
}

func parseSmolLM3(raw json.RawMessage) (*Config, error) {
	d := decoderConfig{ // transformers' defaults
		HiddenSize: 2048, NumHiddenLayers: 36, NumAttentionHeads: 16, NumKeyValueHeads: new(4), IntermediateSize: 11008,
		VocabSize: 128256, MaxPositionEmbeddings: 32768, RMSNormEps: 1e-6,
		TieWordEmbeddings: new(true), ropeKeys: ropeKeys{RoPETheta: new(2e6)},
	}
	own := struct {
		Rotates  []int `json:"no_rope_layers"` // 1 for layers that do rotate
		Interval int   `json:"no_rope_layer_interval"`
	}{Interval: 4}
	c, err := d.parseConfig(raw, &own)
	if err != nil {
		return nil, err
	}
	c.layout = decoderLayout{qkvBias: isTrue(d.AttentionBias), outputBias: isTrue(d.AttentionBias), mlpBias: d.MLPBias}
	if own.Interval < 1 {
		return nil, fmt.Errorf("no_rope_layer_interval: got %d, want at least 1", own.Interval)
	}
	if own.Rotates != nil && len(own.Rotates) != c.Layers {
		return nil, fmt.Errorf("no_rope_layers: got %d, want num_hidden_layers %d of them", len(own.Rotates), c.Layers)
	}
	mixers := c.ownMixers()
	for l := range mixers {
		rotates := (l+1)%own.Interval != 0
		if own.Rotates != nil {
			if rotates = own.Rotates[l] != 0; rotates && own.Rotates[l] != 1 {
				return nil, fmt.Errorf("no_rope_layers: got %d, want 0 or 1", own.Rotates[l])
			}
		}
		if !rotates {
			mixers[l].RoPE = new(RoPE)
		}
	}
	if !isTrue(d.UseSlidingWindow) {
		return c, d.slidingLayers(c, nil, 0)
	}
	if d.LayerTypes == nil { // the layers without rotation
		for l := range mixers {
			d.LayerTypes = append(d.LayerTypes, "full_attention")
			if !c.Rotates(l) && d.SlidingWindow != nil {
				d.LayerTypes[l] = "sliding_attention"
			}
		}
	}
	return c, d.slidingLayers(c, d.SlidingWindow, 0)
}
