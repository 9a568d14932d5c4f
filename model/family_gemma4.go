package model

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"glimpse/kernels"
)

func init() {
	f := Family{
		Doc: "Gemma 4 E2B, E4B, 26B-A4B and 31B, text: sliding windows, wider or fewer KV heads without them, a quarter of a head rotated there; layer scalars; of E2B and E4B shared KV caches and embeddings of layers; of 26B-A4B experts beside an MLP",
		BOS: []int32{2}, EOS: []int32{1},
		Checked:     []Check{CheckLogits, CheckGradients, CheckGGUF},
		ParseConfig: parseGemma4,
	}
	Families.Add("Gemma4ForCausalLM", f)
	f.Doc, f.Checked = "Gemma 4 12B, text: computed as Gemma 4 31B", []Check{CheckLogits}
	Families.Add("Gemma4UnifiedForCausalLM", f)
}

// gemma4Config is what the config.json of Gemma 4 has beside that of Llama.
type gemma4Config struct {
	Activation    string                     `json:"hidden_activation"`
	LogitCap      *float64                   `json:"final_logit_softcapping"`
	Bidirectional *string                    `json:"use_bidirectional_attention"`
	PerLayer      *int                       `json:"hidden_size_per_layer_input"`
	PerLayerVocab int                        `json:"vocab_size_per_layer_input"`
	Padding       *int32                     `json:"pad_token_id"`
	SharedKV      int                        `json:"num_kv_shared_layers"`
	WideMLP       bool                       `json:"use_double_wide_mlp"`
	MoE           bool                       `json:"enable_moe_block"`
	Experts       int                        `json:"num_experts"`
	TopK          int                        `json:"top_k_experts"`
	ExpertWidth   int                        `json:"moe_intermediate_size"`
	KeysAreValues bool                       `json:"attention_k_eq_v"`
	GlobalHeadDim int                        `json:"global_head_dim"`
	GlobalKVHeads *int                       `json:"num_global_key_value_heads"`
	Layers        map[string]gemma4Layer     `json:"per_layer_config"` // the same, as transformers 5 writes it
	Rope          map[string]json.RawMessage `json:"rope_parameters"`
	TorchDType    string                     `json:"torch_dtype"`
	DType         string                     `json:"dtype"`
}

type gemma4Layer struct {
	HeadDim *int `json:"head_dim"`
	KVHeads *int `json:"num_key_value_heads"`
}

func parseGemma4(raw json.RawMessage) (*Config, error) {
	d := gemmaDefaults()
	d.NumHiddenLayers, d.VocabSize, d.SlidingWindow = 30, 262144, new(512)
	own := gemma4Config{Activation: "gelu_pytorch_tanh", PerLayer: new(256), PerLayerVocab: 262144, Padding: new(int32(0)), GlobalHeadDim: 512}
	if unified(raw) {
		own.PerLayer = nil
	}
	c, err := d.parseConfig(raw, &own)
	if err != nil {
		return nil, err
	}
	switch {
	case own.Activation != "gelu_pytorch_tanh":
		return nil, fmt.Errorf("hidden_activation: got %q, want \"gelu_pytorch_tanh\"", own.Activation)
	case own.Bidirectional != nil && *own.Bidirectional != "vision": // which text does not see
		return nil, fmt.Errorf("use_bidirectional_attention: got %q, want null or \"vision\": rows that see later ones are not computed", *own.Bidirectional)
	}
	if own.LogitCap != nil {
		if c.LogitCap = *own.LogitCap; !(c.LogitCap > 0) || math.IsInf(c.LogitCap, 0) {
			return nil, fmt.Errorf("final_logit_softcapping: got %v, want a positive number or null", c.LogitCap)
		}
	}
	d.fullEvery(6)
	if n := len(d.LayerTypes); n > 0 { // as transformers has it
		d.LayerTypes[n-1] = "full_attention"
	}
	if err := d.slidingLayers(c, d.SlidingWindow, 0); err != nil {
		return nil, err
	}
	if err := own.shapes(c); err != nil {
		return nil, err
	}
	if err := own.sharePairs(c, d.LayerTypes); err != nil {
		return nil, err
	}
	if err := own.rotations(c); err != nil {
		return nil, err
	}
	c.QueryScale = 1
	scale := gemmaConfig{TorchDType: own.TorchDType, DType: own.DType}
	layout := scale.layout(c, eachHead, isTrue(d.AttentionBias))
	layout.normsPlus, layout.valueNorms, layout.keysAreValues, layout.scalars = 0, true, own.KeysAreValues, true
	if layout.wide = own.WideMLP && c.SharesKV(); layout.wide {
		c.Intermediate *= 2
	}
	if layout.inputs, err = own.inputs(c, scale); err != nil {
		return nil, err
	}
	if own.MoE {
		layout.experts = &expertsLayout{
			Routing: Routing{TopK: own.TopK, Normalise: true}, experts: own.Experts, width: own.ExpertWidth, how: kernels.GELUTanh,
			router: "router.proj", each: "experts.%d", gate: "gate_proj", up: "up_proj", down: "down_proj",
			beside: &besideNames{
				routerNorm: "router.scale", norm: "pre_feedforward_layernorm_2.weight", scales: "router.per_expert_scale",
				denseNorm: "post_feedforward_layernorm_1.weight", expertsNorm: "post_feedforward_layernorm_2.weight",
			},
		}
		if err := layout.experts.checkRouter(c); err != nil {
			return nil, err
		}
	}
	c.layout = layout
	return c, nil
}

// sharePairs lets the last layers attend to the keys and values of the last one of their type before them.
func (g *gemma4Config) sharePairs(c *Config, types []string) error {
	if g.SharedKV == 0 {
		return nil
	}
	if g.SharedKV < 0 || g.SharedKV >= c.Layers {
		return fmt.Errorf("num_kv_shared_layers: got %d, want 0 to %d: the first of %d layers has keys and values of its own", g.SharedKV, c.Layers-1, c.Layers)
	}
	last := make(map[string]int) // of each type with keys and values of its own
	mixers := c.ownMixers()
	for l := range mixers {
		if l < c.Layers-g.SharedKV {
			last[types[l]] = l
		}
		from, ok := last[types[l]]
		if l < c.Layers-g.SharedKV {
			continue
		}
		if !ok || c.KV(from) != c.KV(l) {
			return fmt.Errorf("num_kv_shared_layers: got %d, want a layer of %s with the same KV heads before the last %d, which layer %d is to read", g.SharedKV, types[l], g.SharedKV, l)
		}
		mixers[l].Back = l - from
	}
	return nil
}

// inputs are the embeddings of layers; nil where there are none.
func (g *gemma4Config) inputs(c *Config, scale gemmaConfig) (*inputsLayout, error) {
	if g.PerLayer == nil || *g.PerLayer == 0 {
		return nil, nil
	}
	if g.PerLayerVocab != c.Vocab {
		return nil, fmt.Errorf("vocab_size_per_layer_input: got %d, want vocab_size %d", g.PerLayerVocab, c.Vocab)
	}
	if g.Padding == nil {
		return nil, fmt.Errorf("pad_token_id: got null, want a token: learned rows have its embeddings of layers")
	}
	x := &inputsLayout{width: *g.PerLayer, scale: scale.root(*g.PerLayer), padding: *g.Padding}
	return x, x.checkWidth(c)
}

// unified tells that config.json is of Gemma 4 12B, whose classes have no embeddings of layers.
func unified(raw json.RawMessage) bool {
	var c struct {
		Architectures []string `json:"architectures"`
		ModelType     string   `json:"model_type"`
	}
	_ = json.Unmarshal(raw, &c) // which was read before
	return c.ModelType == "gemma4_unified" || c.ModelType == "gemma4_unified_text" || len(c.Architectures) > 0 && c.Architectures[0] == "Gemma4UnifiedForCausalLM"
}

// shapes sets the KV heads: layers without a window have KVHeads of HeadDim, the others have theirs in their Mixers.
func (g *gemma4Config) shapes(c *Config) error {
	sliding, whole := KVShape{c.KVHeads, c.HeadDim}, KVShape{c.KVHeads, g.GlobalHeadDim}
	if g.GlobalKVHeads != nil && g.KeysAreValues {
		whole.Heads = *g.GlobalKVHeads
	}
	mixers, unset := c.ownMixers(), true
	for l := range mixers {
		own, shape := g.Layers[strconv.Itoa(l)], sliding
		if c.Window(l) == 0 && g.Layers == nil {
			shape = whole
		}
		shape.Dim, shape.Heads = first(shape.Dim, own.HeadDim), first(shape.Heads, own.KVHeads)
		if shape.Heads < 1 || c.Heads%shape.Heads != 0 || shape.Dim < 2 || shape.Dim%2 != 0 || shape.Dim > 1<<12 {
			return fmt.Errorf("layer %d: got %d KV heads of width %d for %d query heads, want a divisor of those and an even width of at most 4096", l, shape.Heads, shape.Dim, c.Heads)
		}
		if mixers[l].KV = shape; c.Window(l) > 0 {
			continue
		}
		if now := (KVShape{c.KVHeads, c.HeadDim}); !unset && now != shape {
			return fmt.Errorf("per_layer_config: got %d KV heads of width %d in layer %d and %d of %d before, want all layers without a window alike", shape.Heads, shape.Dim, l, now.Heads, now.Dim)
		}
		c.KVHeads, c.HeadDim, unset = shape.Heads, shape.Dim, false
	}
	return nil
}

// rotations sets RoPE of layers without a window, and of the others.
func (g *gemma4Config) rotations(c *Config) error {
	if g.Rope == nil {
		g.Rope = map[string]json.RawMessage{
			"sliding_attention": json.RawMessage(`{"rope_type": "default", "rope_theta": 10000}`),
			"full_attention":    json.RawMessage(`{"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000}`),
		}
	}
	if err := c.setRoPE(ropeKeys{RoPEParameters: g.Rope["full_attention"]}); err != nil {
		return err
	}
	mixers := c.ownMixers()
	for l := range mixers {
		if c.Window(l) == 0 {
			continue
		}
		if l > 0 && mixers[l-1].RoPE != nil && c.KV(l-1) == c.KV(l) {
			mixers[l].RoPE = mixers[l-1].RoPE
			continue
		}
		local := *c
		local.HeadDim = c.KV(l).Dim
		if err := local.setRoPE(ropeKeys{RoPEParameters: g.Rope["sliding_attention"]}); err != nil {
			return fmt.Errorf("sliding_attention: %w", err)
		}
		mixers[l].RoPE = &local.RoPE
	}
	return nil
}
