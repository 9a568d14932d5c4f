package model

import "encoding/json"

func init() {
	Families.Add("SeedOssForCausalLM", Family{
		Doc:     "Seed-OSS 36B: biases on queries, keys and values",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		BOS:     []int32{0}, EOS: []int32{2},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := decoderConfig{ // transformers' defaults; heads are as wide whatever hidden_size is
				HiddenSize: 4096, NumHiddenLayers: 64, NumAttentionHeads: 80, NumKeyValueHeads: new(8), HeadDim: new(128), IntermediateSize: 27648,
				VocabSize: 155136, MaxPositionEmbeddings: 524288, RMSNormEps: 1e-6, AttentionBias: new(true),
			}
			var own struct {
				OutputBias bool `json:"attention_out_bias"`
			}
			c, err := d.parseConfig(raw, &own)
			if err != nil {
				return nil, err
			}
			c.layout = decoderLayout{qkvBias: isTrue(d.AttentionBias), outputBias: own.OutputBias, mlpBias: d.MLPBias}
			return c, nil
		},
	})
}
