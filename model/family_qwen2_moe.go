package model

import "encoding/json"

func init() {
	Families.Add("Qwen2MoeForCausalLM", Family{
		Doc:     "Qwen1.5-MoE A2.7B, Qwen2 57B-A14B: experts in the place of the MLP, one of them for all rows, with a gate",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := qwenMoEConfig{ // transformers' defaults
				decoderConfig: decoderConfig{
					HiddenSize: 2048, NumHiddenLayers: 24, NumAttentionHeads: 16, NumKeyValueHeads: new(16), IntermediateSize: 5632,
					VocabSize: 151936, MaxPositionEmbeddings: 32768, RMSNormEps: 1e-6, SlidingWindow: new(4096), MaxWindowLayers: new(28),
				},
				Step: 1, Width: 1408, TopK: 4, Experts: 60,
			}
			own := struct {
				Shared int   `json:"shared_expert_intermediate_size"`
				Bias   *bool `json:"qkv_bias"`
			}{5632, new(true)}
			c, x, err := d.parse(raw, &own)
			if err != nil {
				return nil, err
			}
			x.shared, x.sharedExpert, x.sharedGate = own.Shared, "mlp.shared_expert", "mlp.shared_expert_gate"
			c.layout = decoderLayout{qkvBias: isTrue(own.Bias), experts: x}
			if err := x.checkRouter(c); err != nil {
				return nil, err
			}
			return c, d.qwenWindow(c)
		},
	})
}
