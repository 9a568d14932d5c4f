package model

import (
	"encoding/json"
	"fmt"
)

func init() {
	Families.Add("Gemma3ForCausalLM", Family{
		Doc: "Gemma 3, text: five of six layers with a sliding window and a rotation of their own, norms on the queries and keys of every head and around both blocks",
		BOS: []int32{2}, EOS: []int32{1},
		Checked:     []Check{CheckLogits, CheckGradients, CheckGGUF},
		ParseConfig: parseGemma3,
	})
}

func parseGemma3(raw json.RawMessage) (*Config, error) {
	d := gemmaDefaults()
	d.VocabSize = 262208
	var own gemmaConfig
	c, err := own.parse(raw, &d, 6)
	if err != nil {
		return nil, err
	}
	c.layout = own.layout(c, eachHead, isTrue(d.AttentionBias))
	var keys struct {
		Local *float64                   `json:"rope_local_base_freq"`
		Rope  map[string]json.RawMessage `json:"rope_parameters"` // by the types of layers, as transformers 5 writes them
	}
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, err
	}
	whole, sliding := d.ropeKeys, ropeKeys{RoPETheta: keys.Local}
	if whole.RoPETheta == nil {
		whole.RoPETheta = new(1e6)
	}
	if sliding.RoPETheta == nil {
		sliding.RoPETheta = new(1e4)
	}
	if keys.Rope != nil {
		whole.RoPEParameters, sliding.RoPEParameters = keys.Rope["full_attention"], keys.Rope["sliding_attention"]
	}
	if err := c.setRoPE(whole); err != nil {
		return nil, err
	}
	local := *c
	if err := local.setRoPE(sliding); err != nil {
		return nil, fmt.Errorf("rope_local_base_freq: %w", err)
	}
	c.LayerRoPE = make([]*RoPE, c.Layers)
	for l := range c.LayerRoPE {
		if c.Window(l) > 0 {
			c.LayerRoPE[l] = &local.RoPE
		}
	}
	return c, nil
}
