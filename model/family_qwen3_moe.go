package model

import (
	"encoding/json"
	"fmt"
)

func init() {
	Families.Add("Qwen3MoeForCausalLM", Family{
		Doc:     "Qwen3 30B-A3B and 235B-A22B, Qwen3-Coder: experts in the place of the MLP, norms on the queries and keys of every head",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := qwenMoEConfig{ // transformers' defaults
				decoderConfig: decoderConfig{
					HiddenSize: 2048, NumHiddenLayers: 24, NumAttentionHeads: 32, NumKeyValueHeads: new(4), IntermediateSize: 6144,
					VocabSize: 151936, MaxPositionEmbeddings: 32768, RMSNormEps: 1e-6, SlidingWindow: new(4096),
				},
				Step: 1, Width: 768, TopK: 8, Experts: 128,
			}
			c, x, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			c.layout = decoderLayout{qkvBias: isTrue(d.AttentionBias), outputBias: isTrue(d.AttentionBias), headNorms: eachHead, experts: x}
			if !isTrue(d.UseSlidingWindow) {
				d.SlidingWindow = nil
			}
			return c, d.slidingLayers(c, d.SlidingWindow, 0)
		},
	})
}

// qwenMoEConfig are the keys of Qwen's models with experts.
type qwenMoEConfig struct {
	decoderConfig
	Step      int   `json:"decoder_sparse_step"`
	Width     int   `json:"moe_intermediate_size"`
	TopK      int   `json:"num_experts_per_tok"`
	Experts   int   `json:"num_experts"`
	Normalise bool  `json:"norm_topk_prob"`
	Dense     []int `json:"mlp_only_layers"`
}

func (d *qwenMoEConfig) parse(raw json.RawMessage, own ...any) (*Config, *expertsLayout, error) {
	c, err := d.decoderConfig.parseConfig(raw, append(own, d)...)
	if err != nil {
		return nil, nil, err
	}
	if d.Step < 1 {
		return nil, nil, fmt.Errorf("decoder_sparse_step: got %d, want at least 1", d.Step)
	}
	x := &expertsLayout{
		Routing: Routing{TopK: d.TopK, Normalise: d.Normalise}, experts: d.Experts, width: d.Width, dense: make([]bool, c.Layers),
		router: "mlp.gate", each: "mlp.experts.%d", gate: "gate_proj", up: "up_proj", down: "down_proj",
	}
	for l := range x.dense {
		x.dense[l] = (l+1)%d.Step != 0
	}
	for _, l := range d.Dense {
		if l < 0 || l >= c.Layers {
			return nil, nil, fmt.Errorf("mlp_only_layers: got %d, want 0 to %d", l, c.Layers-1)
		}
		x.dense[l] = true
	}
	return c, x, x.checkRouter(c)
}
