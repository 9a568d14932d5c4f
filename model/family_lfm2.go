package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

func init() {
	Families.Add("Lfm2ForCausalLM", Family{
		Doc:     "LFM2: short convolutions in most layers, attention with norms of queries and keys in the others",
		Checked: []Check{CheckLogits, CheckGradients},
		BOS:     []int32{1}, EOS: []int32{2},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := decoderConfig{ // transformers' defaults
				HiddenSize: 2560, NumHiddenLayers: 32, NumAttentionHeads: 32, NumKeyValueHeads: new(8), IntermediateSize: 12288,
				VocabSize: 65536, MaxPositionEmbeddings: 128000, RMSNormEps: 1e-5, TieWordEmbeddings: new(true), ropeKeys: ropeKeys{RoPETheta: new(1e6)},
			}
			own := lfm2Config{Eps: 1e-5, Kernel: 3, Adjusted: true, Multiplier: new(1.0), Multiple: 256}
			c, err := d.parseConfig(raw, &own)
			if err != nil {
				return nil, err
			}
			return own.layers(c, &d)
		},
	})
}

type lfm2Config struct {
	Eps        float64  `json:"norm_eps"`
	Kernel     int      `json:"conv_L_cache"`
	ConvBias   bool     `json:"conv_bias"`
	Attention  *[]int   `json:"full_attn_idxs"`
	Tied       *bool    `json:"tie_embedding"` // older names
	Inner      *int     `json:"block_ff_dim"`
	Adjusted   bool     `json:"block_auto_adjust_ff_dim"`
	Multiplier *float64 `json:"block_ffn_dim_multiplier"`
	Multiple   int      `json:"block_multiple_of"`
}

// layers sets what the keys say of c.
func (own *lfm2Config) layers(c *Config, d *decoderConfig) (*Config, error) {
	c.RMSNormEps, c.Intermediate = own.Eps, first(c.Intermediate, own.Inner)
	if own.Tied != nil {
		c.TieEmbeddings = *own.Tied
	}
	if own.ConvBias {
		return nil, fmt.Errorf("conv_bias: got true, want false")
	}
	if own.Adjusted {
		if m := first(1, own.Multiplier); own.Multiple < 1 || own.Multiple > 1<<20 || !(m > 0 && m <= 1e3) {
			return nil, fmt.Errorf("block_multiple_of, block_ffn_dim_multiplier: got %d and %v, want 1 to %d and above 0 to 1000", own.Multiple, m, 1<<20)
		}
		c.Intermediate = int(first(1, own.Multiplier) * float64(2*c.Intermediate/3))
		c.Intermediate = (c.Intermediate + own.Multiple - 1) / own.Multiple * own.Multiple
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	conv := &ConvShape{Width: c.Hidden, Kernel: own.Kernel}
	if err := conv.checkExtents(); err != nil {
		return nil, err
	}
	types := d.LayerTypes
	for l := 0; d.LayerTypes == nil && l < c.Layers; l++ {
		types = append(types, map[bool]string{true: "full_attention", false: "conv"}[own.Attention == nil || slices.Contains(*own.Attention, l)])
	}
	c.layout = decoderLayout{headNorms: eachHead, names: strings.NewReplacer(
		"model.norm.", "model.embedding_norm.", ".input_layernorm.", ".operator_norm.", ".post_attention_layernorm.", ".ffn_norm.",
		".self_attn.o_proj.", ".self_attn.out_proj.", "_norm.weight", "_layernorm.weight",
		".mlp.gate_proj.", ".feed_forward.w1.", ".mlp.down_proj.", ".feed_forward.w2.", ".mlp.up_proj.", ".feed_forward.w3.",
	)}
	return c, c.recurrentLayers(types, "conv", conv)
}
