package model

func init() {
	Families.Add("Phi3ForCausalLM", Family{
		Doc:     "Phi-3 mini and medium, Phi-3.5 mini, Phi-4 and Phi-4 mini: q, k and v, and gate and up, are rows of one weight",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		BOS:     []int32{1}, EOS: []int32{32000},
		PartialRotary: true,
		ParseConfig: decoderFamily(func() decoderConfig {
			return decoderConfig{ // transformers' defaults
				HiddenSize: 3072, NumHiddenLayers: 32, NumAttentionHeads: 32, IntermediateSize: 8192,
				VocabSize: 32064, MaxPositionEmbeddings: 4096, RMSNormEps: 1e-5, ropeKeys: ropeKeys{OriginalContext: new(4096.0)},
			}
		}, func(c *Config, d *decoderConfig) error {
			c.layout = decoderLayout{fusedQKV: true, fusedMLP: true}
			return d.slidingLayers(c, d.SlidingWindow, 0)
		}),
	})
}
