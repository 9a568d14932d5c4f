package model

import (
	"cmp"
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
	whole, sliding := d.ropeKeys, ropeKeys{RoPETheta: cmp.Or(own.LocalTheta, new(1e4))}
	whole.RoPETheta = cmp.Or(whole.RoPETheta, new(1e6))
	if own.Rope != nil {
		whole.RoPEParameters, sliding.RoPEParameters = own.Rope["full_attention"], own.Rope["sliding_attention"]
	}
	if err := c.setRoPE(whole); err != nil {
		return nil, err
	}
	local := *c
	if err := local.setRoPE(sliding); err != nil {
		return nil, fmt.Errorf("rope_local_base_freq: %w", err)
	}
	c.rotateWindows(&local.RoPE)
	return c, nil
}
