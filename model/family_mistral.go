package model

import "encoding/json"

// mistralWindow is transformers' default where config.json does not name
// sliding_window; v0.2 and later say null.
const mistralWindow = 4096

// mistralDefaults are those of transformers for Mistral and Ministral.
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
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := mistralDefaults()
			c, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			c.layout = decoderLayout{}
			return c, d.slidingLayers(c, d.SlidingWindow, 0)
		},
	})
}
