package model

import (
	"encoding/json"
	"fmt"

	"glimpse/kernels"
)

func init() {
	Families.Add("Qwen3NextForCausalLM", Family{
		Doc:           "Qwen3-Next 80B-A3B: gated delta nets in three of four layers, attention with an output gate in the fourth, experts, one of them for all rows",
		Checked:       []Check{CheckLogits, CheckGradients},
		PartialRotary: true,
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := qwenMoEConfig{ // transformers' defaults
				decoderConfig: decoderConfig{
					HiddenSize: 2048, NumHiddenLayers: 48, NumAttentionHeads: 16, NumKeyValueHeads: new(2), HeadDim: new(256), IntermediateSize: 5632,
					VocabSize: 151936, MaxPositionEmbeddings: 32768, RMSNormEps: 1e-6, ropeKeys: ropeKeys{PartialRotary: new(0.25)},
				},
				Step: 1, Width: 512, TopK: 10, Experts: 512, Normalise: true,
			}
			c, x, err := d.parse(raw)
			if err != nil {
				return nil, err
			}
			return hybrid(raw, c, &d.decoderConfig, true, x)
		},
	})
}

// deltaConfig are the keys of models with gated delta nets.
type deltaConfig struct {
	KeyHeads   int `json:"linear_num_key_heads"`
	ValueHeads int `json:"linear_num_value_heads"`
	KeyDim     int `json:"linear_key_head_dim"`
	ValueDim   int `json:"linear_value_head_dim"`
	Kernel     int `json:"linear_conv_kernel_dim"`
	Interval   int `json:"full_attention_interval"`
	Shared     int `json:"shared_expert_intermediate_size"`
}

// hybrid is a model of Qwen3-Next's kind: c with gated delta nets, norms stored less 1, and attention with an output gate.
// x are its experts, or nil.
func hybrid(raw json.RawMessage, c *Config, d *decoderConfig, fused bool, x *expertsLayout) (*Config, error) {
	own := deltaConfig{KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, Kernel: 4, Interval: 4, Shared: 512}
	if err := json.Unmarshal(raw, &own); err != nil {
		return nil, err
	}
	nets := &DeltaShape{KeyHeads: own.KeyHeads, ValueHeads: own.ValueHeads, KeyDim: own.KeyDim, ValueDim: own.ValueDim, Kernel: own.Kernel, fused: fused}
	if err := nets.checkExtents(); err != nil {
		return nil, err
	}
	if own.Interval < 1 {
		return nil, fmt.Errorf("full_attention_interval: got %d, want at least 1", own.Interval)
	}
	if d.LayerTypes == nil {
		for l := range c.Layers {
			d.LayerTypes = append(d.LayerTypes, map[bool]string{true: "full_attention", false: "linear_attention"}[(l+1)%own.Interval == 0])
		}
	}
	if err := c.recurrentLayers(d.LayerTypes, "linear_attention", nets); err != nil {
		return nil, err
	}
	c.unused = "mtp." // further tokens are predicted by it
	bias := isTrue(d.AttentionBias)
	c.layout = decoderLayout{qkvBias: bias, outputBias: bias, headNorms: eachHead, normsPlus: 1, outputGate: true, experts: x}
	if x == nil {
		return c, nil
	}
	x.shared, x.sharedExpert, x.sharedGate = own.Shared, "mlp.shared_expert", "mlp.shared_expert_gate"
	return c, x.checkRouter(c)
}

func (s *DeltaShape) bind(c *Config, b *Binder, at string) Recurrent {
	d, group := &DeltaNet{DeltaShape: s}, s.group()
	at += "linear_attn."
	in := func(name string, out int) int {
		d.In = append(d.In, nil)
		n := len(d.In) - 1
		b.addSlot(slot{name: at + name + ".weight", shape: []int{out, c.Hidden}, set: func(t *kernels.Tensor) { d.In[n] = t }})
		return n
	}
	if s.fused {
		all, rates := in("in_proj_qkvz", 2*s.keys()+2*s.values()), in("in_proj_ba", 2*s.ValueHeads)
		step, values := s.channels()+group*s.ValueDim, 2*s.KeyDim
		d.query, d.key, d.value, d.gate = deltaPart{all, 0, step}, deltaPart{all, s.KeyDim, step}, deltaPart{all, values, step}, deltaPart{all, s.channels(), step}
		d.beta, d.rate = deltaPart{rates, 0, 2 * group}, deltaPart{rates, group, 2 * group}
	} else {
		all, step := in("in_proj_qkv", 2*s.keys()+s.values()), group*s.ValueDim
		d.query, d.key, d.value = deltaPart{all, 0, s.KeyDim}, deltaPart{all, s.keys(), s.KeyDim}, deltaPart{all, 2 * s.keys(), step}
		d.gate = deltaPart{in("in_proj_z", s.values()), 0, step}
		d.beta = deltaPart{in("in_proj_b", s.ValueHeads), 0, group}
		d.rate = deltaPart{in("in_proj_a", s.ValueHeads), 0, group}
	}
	b.addSlot(slot{name: at + "conv1d.weight", shape: []int{2*s.keys() + s.values(), 1, s.Kernel}, compute: true, set: func(t *kernels.Tensor) { d.Conv = t }})
	b.Vector(at+"A_log", &d.Decay, s.ValueHeads)
	b.Vector(at+"dt_bias", &d.Bias, s.ValueHeads)
	b.Vector(at+"norm.weight", &d.Norm.Weight, s.ValueDim)
	d.Norm.Eps = c.RMSNormEps
	b.Matrix(at+"out_proj.weight", &d.Out, c.Hidden, s.values())
	return d
}
