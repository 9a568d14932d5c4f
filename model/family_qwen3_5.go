package model

import "encoding/json"

func init() {
	defaults := func() decoderConfig { // transformers'
		return decoderConfig{
			HiddenSize: 4096, NumHiddenLayers: 32, NumAttentionHeads: 16, NumKeyValueHeads: new(4), HeadDim: new(256), IntermediateSize: 12288,
			VocabSize: 248320, MaxPositionEmbeddings: 32768, RMSNormEps: 1e-6, ropeKeys: ropeKeys{PartialRotary: new(0.25)},
		}
	}
	Families.Add("Qwen3_5ForCausalLM", Family{
		Doc:           "Qwen3.5, dense, and the text model of those with images: Qwen3-Next with an MLP in the place of experts",
		Checked:       []Check{CheckLogits},
		PartialRotary: true,
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := defaults()
			c, err := d.parseConfig(raw)
			if err != nil {
				return nil, err
			}
			return hybrid(raw, c, &d, false, nil)
		},
	})
	Families.Add("Qwen3_5MoeForCausalLM", Family{
		Doc:           "Qwen3.5 35B-A3B and others with experts, one of them for all rows, and the text model of those with images",
		Checked:       []Check{CheckLogits},
		PartialRotary: true,
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := qwenMoEConfig{decoderConfig: defaults(), Step: 1, Width: 512, TopK: 8, Experts: 256, Normalise: true}
			d.HiddenSize, d.NumHiddenLayers, d.NumKeyValueHeads = 2048, 40, new(2)
			c, x, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			return hybrid(raw, c, &d.decoderConfig, false, x)
		},
	})
}
