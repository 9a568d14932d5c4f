package model

func init() {
	Families.Add("Olmo2ForCausalLM", Family{
		Doc:     "OLMo 2: norms after the blocks and none before, norms of all queries and of all keys",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		EOS:     []int32{50279},
		ParseConfig: decoderFamily(olmoDefaults, func(c *Config, d *decoderConfig) error {
			c.layout = olmoLayout(d)
			return nil
		}),
	})
}

// olmoDefaults are the defaults of transformers for OLMo 2 and 3.
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
