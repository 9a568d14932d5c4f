package model

import "encoding/json"

func init() {
	Families.Add("Ministral3ForCausalLM", Family{
		Doc:     "Ministral 3 3B, 8B, 14B: YaRN, queries that grow with their positions",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		BOS:     []int32{1}, EOS: []int32{2},
		ParseConfig: decoderFamily(func() decoderConfig {
			return decoderConfig{ // transformers' defaults
				HiddenSize: 4096, NumHiddenLayers: 34, NumAttentionHeads: 32, NumKeyValueHeads: new(8), HeadDim: new(128), IntermediateSize: 14336,
				VocabSize: 131072, MaxPositionEmbeddings: 262144, RMSNormEps: 1e-5, ropeKeys: ropeKeys{RoPETheta: new(1e6)},
			}
		}, func(c *Config, d *decoderConfig) error {
			if !given(d.RoPEScaling) && !given(d.RoPEParameters) {
				d.RoPEScaling = json.RawMessage(`{"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 16384, "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1}`)
				if err := c.setRoPE(d.ropeKeys); err != nil {
					return err
				}
			}
			if err := c.positionScale(d.ropeKeys); err != nil {
				return err
			}
			return d.slidingLayers(c, d.SlidingWindow, 0)
		}),
	})
}
