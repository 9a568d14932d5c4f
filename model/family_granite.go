package model

import (
	"encoding/json"
	"fmt"
	"math"
)

func init() {
	Families.Add("GraniteForCausalLM", Family{
		Doc:     "Granite 3.0 to 3.3, dense: multipliers on embeddings, attention, blocks and logits",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		BOS:     []int32{1}, EOS: []int32{2},
		ParseConfig: parseGranite,
	})
}

// parseGranite folds the multipliers away. With the residual stream divided by that of the
// embeddings, those are the table's rows, and blocks add less; norms do not see the
// difference but for their epsilon. That of attention goes to queries and keys, half of it
// to each, with their rotation.
func parseGranite(raw json.RawMessage) (*Config, error) {
	d := decoderConfig{ // transformers' defaults
		HiddenSize: 4096, NumHiddenLayers: 32, NumAttentionHeads: 32, IntermediateSize: 11008,
		VocabSize: 32000, MaxPositionEmbeddings: 2048, RMSNormEps: 1e-6,
	}
	own := struct {
		Embedding float64 `json:"embedding_multiplier"`
		Attention float64 `json:"attention_multiplier"`
		Residual  float64 `json:"residual_multiplier"`
		Logits    float64 `json:"logits_scaling"`
	}{1, 1, 1, 1}
	c, err := d.parseConfig(raw, &own)
	if err != nil {
		return nil, err
	}
	for _, m := range []struct {
		key   string
		value float64
	}{
		{"embedding_multiplier", own.Embedding}, {"attention_multiplier", own.Attention},
		{"residual_multiplier", own.Residual}, {"logits_scaling", own.Logits},
	} {
		if !(m.value >= 1e-6 && m.value <= 1e6) {
			return nil, fmt.Errorf("%s: got %v, want 1e-6 to 1e6", m.key, m.value)
		}
	}
	if isTrue(d.AttentionBias) || d.MLPBias {
		return nil, fmt.Errorf("attention_bias, mlp_bias: got %t, %t, want false: no Granite 3 has biases", isTrue(d.AttentionBias), d.MLPBias)
	}
	c.BlockScale, c.LogitScale = own.Residual/own.Embedding, 1/own.Logits
	c.RMSNormEps /= own.Embedding * own.Embedding
	c.RoPEScale *= math.Sqrt(own.Attention * math.Sqrt(float64(c.HeadDim)))
	return c, nil
}
