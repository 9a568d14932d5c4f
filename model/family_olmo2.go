package model

import "encoding/json"

func init() {
	Families.Add("Olmo2ForCausalLM", Family{
		Doc:     "OLMo 2: norms after the blocks and none before, norms of all queries and of all keys",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		EOS:     []int32{50279},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := olmoDefaults()
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			c.layout = olmoLayout(&d)
			return c, nil
		},
	})
}

// olmoDefaults are those of transformers for OLMo 2 and 3.
func olmoDefaults() decoderConfig {
	return decoderConfig{
		HiddenSize: 4096, NumHiddenLayers: 32, NumAttentionHeads: 32, IntermediateSize: 11008,
		VocabSize: 50304, MaxPositionEmbeddings: 2048, RMSNormEps: 1e-5, SlidingWindow: new(4096),
	}
}

// olmoLayout is that of OLMo 2 and 3.
func olmoLayout(d *decoderConfig) decoderLayout {
	return decoderLayout{
		qkvBias: isTrue(d.AttentionBias), outputBias: isTrue(d.AttentionBias), headNorms: allHeads,
		norms: blockNorms{postAttention: "post_attention_layernorm", postMLP: "post_feedforward_layernorm"},
	}
}
