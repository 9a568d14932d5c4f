package model

import (
	"encoding/json"
	"fmt"
)

func init() {
	Families.Add("Glm4MoeForCausalLM", Family{
		Doc:           "GLM-4.5, 4.5-Air, 4.6: dense layers, then experts of groups, one of them for all rows; half of a head rotated",
		Checked:       []Check{CheckLogits, CheckGradients, CheckGGUF},
		PartialRotary: true,
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := decoderConfig{ // transformers' defaults
				HiddenSize: 4096, NumHiddenLayers: 46, NumAttentionHeads: 96, NumKeyValueHeads: new(8), IntermediateSize: 10944,
				VocabSize: 151552, MaxPositionEmbeddings: 131072, RMSNormEps: 1e-5, ropeKeys: ropeKeys{PartialRotary: new(0.5)},
			}
			own := struct {
				Width      int     `json:"moe_intermediate_size"`
				TopK       int     `json:"num_experts_per_tok"`
				Shared     int     `json:"n_shared_experts"`
				Experts    int     `json:"n_routed_experts"`
				Scale      float64 `json:"routed_scaling_factor"`
				Groups     int     `json:"n_group"`
				TopGroups  int     `json:"topk_group"`
				FirstDense int     `json:"first_k_dense_replace"`
				Normalise  bool    `json:"norm_topk_prob"`
				HeadNorms  bool    `json:"use_qk_norm"`
				Further    int     `json:"num_nextn_predict_layers"`
			}{Width: 1408, TopK: 8, Shared: 1, Experts: 128, Scale: 1, Groups: 1, TopGroups: 1, FirstDense: 1, Normalise: true}
			c, err := d.parseConfig(raw, &own)
			if err != nil {
				return nil, err
			}
			if own.Scale == 0 || own.Further < 0 || own.Further > 16 {
				return nil, fmt.Errorf("routed_scaling_factor, num_nextn_predict_layers: got %v and %d, want a positive number and 0 to 16", own.Scale, own.Further)
			}
			x := &expertsLayout{
				Routing: Routing{TopK: own.TopK, Logistic: true, Normalise: own.Normalise, Scale: own.Scale, Groups: own.Groups, TopGroups: own.TopGroups},
				experts: own.Experts, width: own.Width, shared: own.Shared * own.Width, dense: make([]bool, c.Layers),
				router: "mlp.gate", each: "mlp.experts.%d", gate: "gate_proj", up: "up_proj", down: "down_proj",
				sharedExpert: "mlp.shared_experts", correction: "mlp.gate.e_score_correction_bias",
			}
			for l := range x.dense {
				x.dense[l] = l < own.FirstDense
			}
			layout := decoderLayout{qkvBias: isTrue(d.AttentionBias), experts: x}
			if own.HeadNorms {
				layout.headNorms = eachHead
			}
			c.layout, c.further = layout, own.Further
			return c, x.checkRouter(c)
		},
	})
}
