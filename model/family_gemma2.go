package model

import (
	"encoding/json"
	"fmt"
	"math"

	"glimpse/internal/simd"
	"glimpse/kernels"
)

func init() {
	Families.Add("Gemma2ForCausalLM", Family{
		Doc: "Gemma 2: every other layer with a sliding window, soft caps of the logits of attention and of tokens, norms around both blocks",
		BOS: []int32{2}, EOS: []int32{1},
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		ParseConfig: func(raw json.RawMessage) (*Config, error) {
			d := gemmaDefaults()
			own := gemmaConfig{AttentionCap: new(50.0), LogitCap: new(30.0)}
			d.MaxPositionEmbeddings = 8192
			c, err := own.parse(raw, &d, 2)
			if err != nil {
				return nil, err
			}
			c.layout = own.layout(c, noHeadNorms, isTrue(d.AttentionBias))
			return c, nil
		},
	})
}

// gemmaDefaults are the defaults of transformers for Gemma 2 and 3.
func gemmaDefaults() decoderConfig {
	return decoderConfig{
		HiddenSize: 2304, NumHiddenLayers: 26, NumAttentionHeads: 8, NumKeyValueHeads: new(4), HeadDim: new(256), IntermediateSize: 9216,
		VocabSize: 256000, MaxPositionEmbeddings: 131072, RMSNormEps: 1e-6, TieWordEmbeddings: new(true), SlidingWindow: new(4096),
		ownActivation: true,
	}
}

// gemmaConfig is what the config.json of Gemma 2 and 3 has beside that of Llama.
type gemmaConfig struct {
	Activation    *string  `json:"hidden_activation"`
	QueryScalar   *float64 `json:"query_pre_attn_scalar"`
	AttentionCap  *float64 `json:"attn_logit_softcapping"`
	LogitCap      *float64 `json:"final_logit_softcapping"`
	Pattern       int      `json:"sliding_window_pattern"`
	Bidirectional *bool    `json:"use_bidirectional_attention"`
	TorchDType    string   `json:"torch_dtype"`
	DType         string   `json:"dtype"`

	// Of Gemma 3.
	LocalTheta *float64                   `json:"rope_local_base_freq"`
	Rope       map[string]json.RawMessage `json:"rope_parameters"` // by the types of layers, as transformers 5 writes them
}

// parse reads config.json; every layer whose number is a multiple of every sees everything, unless layer_types says
// which ones do.
func (g *gemmaConfig) parse(raw json.RawMessage, d *decoderConfig, every int) (*Config, error) {
	g.Pattern, g.QueryScalar = every, new(256.0)
	c, err := d.parseConfig(raw, g)
	if err != nil {
		return nil, err
	}
	switch {
	case g.Activation != nil && *g.Activation != "gelu_pytorch_tanh":
		return nil, fmt.Errorf("hidden_activation: got %q, want \"gelu_pytorch_tanh\"", *g.Activation)
	case isTrue(g.Bidirectional):
		return nil, fmt.Errorf("use_bidirectional_attention: got true, want false: rows that see later ones are not computed")
	case g.QueryScalar == nil || !(*g.QueryScalar > 0) || math.IsInf(*g.QueryScalar, 0):
		return nil, fmt.Errorf("query_pre_attn_scalar: got %v, want a positive number", g.QueryScalar)
	case g.Pattern < 1:
		return nil, fmt.Errorf("sliding_window_pattern: got %d, want at least 1", g.Pattern)
	}
	c.QueryScale = 1 / math.Sqrt(*g.QueryScalar)
	for _, limit := range []struct {
		key  string
		from *float64
		to   *float64
	}{{"attn_logit_softcapping", g.AttentionCap, &c.AttentionCap}, {"final_logit_softcapping", g.LogitCap, &c.LogitCap}} {
		if limit.from == nil {
			continue
		}
		if *limit.to = *limit.from; !(*limit.to > 0) || math.IsInf(*limit.to, 0) {
			return nil, fmt.Errorf("%s: got %v, want a positive number or null", limit.key, *limit.to)
		}
	}
	if d.SlidingWindow == nil {
		g.Pattern = 1
	}
	d.fullEvery(g.Pattern)
	return c, d.slidingLayers(c, d.SlidingWindow, 0)
}

// layout divides the residual stream by the factor of embeddings, the square root of their width in the type
// of the weights, as transformers has it: then they are the table's rows, blocks add less, and norms see the difference
// in their epsilon alone.
func (g *gemmaConfig) layout(c *Config, heads headNorms, bias bool) decoderLayout {
	return decoderLayout{
		qkvBias: bias, outputBias: bias, headNorms: heads, normsPlus: 1, stream: g.root(c.Hidden), gate: kernels.GELUTanh,
		norms: blockNorms{attention: "input_layernorm", postAttention: "post_attention_layernorm", mlp: "pre_feedforward_layernorm", postMLP: "post_feedforward_layernorm"},
	}
}

// root is the square root of a width, rounded to the type of the weights: by it embeddings are multiplied.
func (g *gemmaConfig) root(width int) float64 {
	scale := []float32{float32(math.Sqrt(float64(width)))}
	bits := make([]uint16, 1)
	switch g.TorchDType + g.DType {
	case "bfloat16":
		simd.NarrowBF16(bits, scale)
		simd.WidenBF16(scale, bits)
	case "float16":
		simd.NarrowF16(bits, scale)
		simd.WidenF16(scale, bits)
	}
	return float64(scale[0])
}
