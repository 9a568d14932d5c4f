package model

func init() {
	Families.Add("LlamaForCausalLM", Family{
		Doc:     "Llama 2, 3, 3.1 and 3.2, CodeLlama, LongChat, Vicuna",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		BOS:     []int32{1}, EOS: []int32{2},
		ParseConfig: decoderFamily(func() decoderConfig {
			return decoderConfig{
				HiddenSize: 4096, NumHiddenLayers: 32, NumAttentionHeads: 32, IntermediateSize: 11008,
				VocabSize: 32000, MaxPositionEmbeddings: 2048, RMSNormEps: 1e-6,
			}
		}, func(c *Config, d *decoderConfig) error {
			c.layout = decoderLayout{qkvBias: isTrue(d.AttentionBias), outputBias: isTrue(d.AttentionBias), mlpBias: d.MLPBias}
			return nil
		}),
	})
}
