package model

func init() {
	Families.Add("Glm4ForCausalLM", Family{
		Doc:     "GLM-4 0414 9B and 32B: norms before and after the blocks, half of a head rotated in neighbouring pairs; gate and up are rows of one weight",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		EOS:     []int32{151329, 151336, 151338}, PartialRotary: true,
		ParseConfig: decoderFamily(func() decoderConfig {
			return decoderConfig{ // transformers' defaults
				HiddenSize: 4096, NumHiddenLayers: 40, NumAttentionHeads: 32, NumKeyValueHeads: new(2), HeadDim: new(128), IntermediateSize: 13696,
				VocabSize: 151552, MaxPositionEmbeddings: 131072, RMSNormEps: 1.5625e-7, AttentionBias: new(true), ropeKeys: ropeKeys{PartialRotary: new(0.5)},
			}
		}, func(c *Config, d *decoderConfig) error {
			c.layout = decoderLayout{
				qkvBias: isTrue(d.AttentionBias), fusedMLP: true, interleaved: true,
				norms: blockNorms{attention: "input_layernorm", postAttention: "post_self_attn_layernorm", mlp: "post_attention_layernorm", postMLP: "post_mlp_layernorm"},
			}
			return nil
		}),
	})
}
