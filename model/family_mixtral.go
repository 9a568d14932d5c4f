package model

import "encoding/json"

func init() {
	Families.Add("MixtralForCausalLM", Family{
		Doc:     "Mixtral 8x7B and 8x22B: experts in the place of the MLP",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		BOS:     []int32{1}, EOS: []int32{2},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := decoderConfig{ // transformers' defaults
				HiddenSize: 4096, NumHiddenLayers: 32, NumAttentionHeads: 32, NumKeyValueHeads: new(8), IntermediateSize: 14336,
				VocabSize: 32000, MaxPositionEmbeddings: 4096 * 32, RMSNormEps: 1e-5, ropeKeys: ropeKeys{RoPETheta: new(1e6)},
			}
			own := struct {
				Experts int `json:"num_local_experts"`
				TopK    int `json:"num_experts_per_tok"`
			}{8, 2}
			c, err := d.parseConfig(raw, &own)
			if err != nil {
				return nil, err
			}
			x := &expertsLayout{
				Routing: Routing{TopK: own.TopK, Normalise: true}, experts: own.Experts, width: c.Intermediate,
				router: "block_sparse_moe.gate", each: "block_sparse_moe.experts.%d", gate: "w1", up: "w3", down: "w2",
			}
			if err := x.checkRouter(c); err != nil {
				return nil, err
			}
			c.layout = decoderLayout{experts: x}
			return c, d.slidingLayers(c, d.SlidingWindow, 0)
		},
	})
}
