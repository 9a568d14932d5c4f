package model

import (
	"encoding/json"
	"fmt"

	"glimpse/kernels"
)

func init() {
	Families.Add("GptOssForCausalLM", Family{
		Doc:         "gpt-oss: experts, every other layer with a sliding window, a sink of every head in the softmax",
		Checked:     []Check{CheckLogits, CheckGradients, CheckGGUF},
		ParseConfig: parseGptOss,
	})
}

func parseGptOss(raw json.RawMessage) (*Config, error) {
	d := decoderConfig{ // transformers' defaults
		HiddenSize: 2880, NumHiddenLayers: 36, NumAttentionHeads: 64, NumKeyValueHeads: new(8), HeadDim: new(64), IntermediateSize: 2880,
		VocabSize: 201088, MaxPositionEmbeddings: 131072, RMSNormEps: 1e-5, SlidingWindow: new(128), AttentionBias: new(true),
		ropeKeys: ropeKeys{RoPETheta: new(150000.0)},
	}
	own := struct {
		Experts int     `json:"num_local_experts"`
		TopK    int     `json:"num_experts_per_tok"`
		Alpha   float64 `json:"swiglu_alpha"`
		Limit   float64 `json:"swiglu_limit"`
	}{128, 4, 1.702, 7}
	c, err := d.parseConfig(raw, &own)
	if err != nil {
		return nil, err
	}
	if !given(d.RoPEScaling) && !given(d.RoPEParameters) {
		d.RoPEScaling = json.RawMessage(`{"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false, "original_max_position_embeddings": 4096}`)
		if err := c.setRoPE(d.ropeKeys); err != nil {
			return nil, err
		}
	}
	if own.Alpha != 1.702 || own.Limit != 7 {
		return nil, fmt.Errorf("swiglu_alpha, swiglu_limit: got %v, %v, want 1.702, 7", own.Alpha, own.Limit)
	}
	x := &expertsLayout{
		Routing: Routing{TopK: own.TopK, Normalise: true}, experts: own.Experts, width: c.Intermediate, biases: true, how: kernels.ClampedSwiGLU,
		router: "mlp.router", each: "mlp.experts.%d", gate: "gate_proj", up: "up_proj", down: "down_proj",
	}
	if err := x.checkRouter(c); err != nil {
		return nil, err
	}
	bias := isTrue(d.AttentionBias)
	c.layout = decoderLayout{qkvBias: bias, outputBias: bias, sinks: true, experts: x}
	d.fullEvery(2)
	return c, d.slidingLayers(c, d.SlidingWindow, 0)
}
