package model

// mistralWindow is transformers' default where config.json does not name
// sliding_window; v0.2 and later say null.
const mistralWindow = 4096

// mistralDefaults are the defaults of transformers for Mistral and Ministral.
func mistralDefaults() decoderConfig {
	return decoderConfig{
		HiddenSize: 4096, NumHiddenLayers: 32, NumAttentionHeads: 32, NumKeyValueHeads: new(8), IntermediateSize: 14336,
		VocabSize: 32000, MaxPositionEmbeddings: 4096 * 32, RMSNormEps: 1e-6, SlidingWindow: new(mistralWindow),
	}
}

func init() {
	Families.Add("MistralForCausalLM", Family{
		Doc:     "Mistral 7B v0.1 (sliding window), v0.2 and v0.3",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		BOS:     []int32{1}, EOS: []int32{2},
		ParseConfig: decoderFamily(mistralDefaults, func(c *Config, d *decoderConfig) error {
			return d.slidingLayers(c, d.SlidingWindow, 0)
		}),
	})
}
