package model

import (
	"encoding/json"
	"fmt"
)

func init() {
	Families.Add("FalconForCausalLM", Family{
		Doc:     "Falcon 7B, 40B and 180B, Falcon 2 11B: parallel attention and MLP; q, k and v are rows of query_key_value",
		Checked: []Check{CheckLogits, CheckGradients, CheckGGUF},
		BOS:     []int32{11}, EOS: []int32{11},
		ParseConfig: parseFalcon,
	})
}

// falconConfig is the part of a Falcon config.json that decides the forward pass;
// the older names are from the first releases.
type falconConfig struct {
	HiddenSize            int     `json:"hidden_size"`
	NEmbed                *int    `json:"n_embed"`
	NumHiddenLayers       int     `json:"num_hidden_layers"`
	NLayer                *int    `json:"n_layer"`
	NumAttentionHeads     int     `json:"num_attention_heads"`
	NHead                 *int    `json:"n_head"`
	FFNHiddenSize         *int    `json:"ffn_hidden_size"`
	VocabSize             int     `json:"vocab_size"`
	MaxPositionEmbeddings int     `json:"max_position_embeddings"`
	LayerNormEpsilon      float64 `json:"layer_norm_epsilon"`
	TieWordEmbeddings     *bool   `json:"tie_word_embeddings"`
	Activation            string  `json:"activation"`
	Bias                  bool    `json:"bias"`
	Alibi                 bool    `json:"alibi"`
	MultiQuery            *bool   `json:"multi_query"`
	ParallelAttn          *bool   `json:"parallel_attn"`
	NewDecoder            bool    `json:"new_decoder_architecture"`
	NumKVHeads            *int    `json:"num_kv_heads"`
	ParallelNorms         *int    `json:"num_ln_in_parallel_attn"`

	ropeKeys
}

func parseFalcon(raw json.RawMessage) (*Config, error) {
	f := falconConfig{ // transformers' defaults
		HiddenSize: 4544, NumHiddenLayers: 32, NumAttentionHeads: 71, VocabSize: 65024,
		MaxPositionEmbeddings: 2048, LayerNormEpsilon: 1e-5, TieWordEmbeddings: new(true),
		Activation: "gelu", MultiQuery: new(true), ParallelAttn: new(true),
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	for _, flag := range []struct {
		key       string
		got, want bool
	}{
		{"alibi", f.Alibi, false}, {"multi_query", isTrue(f.MultiQuery) || f.NewDecoder, true}, {"parallel_attn", isTrue(f.ParallelAttn), true},
	} {
		if flag.got != flag.want {
			return nil, fmt.Errorf("%s: got %t, want %t: of the Falcon models those of 1B are not supported", flag.key, flag.got, flag.want)
		}
	}
	if activationOf(f.Activation) != "gelu" {
		return nil, fmt.Errorf("activation: got %q, want \"gelu\"", f.Activation)
	}
	c := &Config{ // the MLP's width does not follow n_embed
		Hidden: first(f.HiddenSize, f.NEmbed), Layers: first(f.NumHiddenLayers, f.NLayer), Heads: first(f.NumAttentionHeads, f.NHead), KVHeads: 1,
		Intermediate: first(4*f.HiddenSize, f.FFNHiddenSize), Vocab: f.VocabSize, MaxPositions: f.MaxPositionEmbeddings,
		RMSNormEps: f.LayerNormEpsilon, TieEmbeddings: isTrue(f.TieWordEmbeddings),
	}
	layout := falconLayout{bias: f.Bias}
	if f.NewDecoder {
		norms := first(2, f.ParallelNorms)
		if norms != 1 && norms != 2 {
			return nil, fmt.Errorf("num_ln_in_parallel_attn: got %d, want 1 or 2", norms)
		}
		layout.grouped, layout.twoNorms, c.KVHeads = true, norms == 2, first(c.Heads, f.NumKVHeads)
	}
	if !(c.RMSNormEps > 0) {
		return nil, fmt.Errorf("layer_norm_epsilon: got %v, want a positive number", c.RMSNormEps)
	}
	if c.Heads > 0 {
		if c.Hidden%c.Heads != 0 {
			return nil, fmt.Errorf("hidden_size: got %d, want a multiple of num_attention_heads %d", c.Hidden, c.Heads)
		}
		c.HeadDim = c.Hidden / c.Heads
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.layout = layout
	return c, c.setRoPE(f.ropeKeys)
}

// falconLayout is what differs between the tensors of Falcon's models.
type falconLayout struct {
	bias     bool
	grouped  bool // queries, keys and values are stored by KV head
	twoNorms bool // attention and MLP have a norm each
}

func (f falconLayout) bind(c *Config, b *Binder) *Network {
	n := &Network{Layers: make([]Layer, c.Layers)}
	b.Matrix("transformer.word_embeddings.weight", &n.Embedding, c.Vocab, c.Hidden)
	for i := range n.Layers {
		b.Layer(i)
		l, at := &n.Layers[i], fmt.Sprintf("transformer.h.%d.", i)
		l.Parallel = true
		if f.twoNorms {
			b.LayerNorm(at+"ln_attn", &l.AttentionNorm, c.Hidden)
			b.LayerNorm(at+"ln_mlp", &l.MLPNorm, c.Hidden)
		} else {
			b.LayerNorm(at+"input_layernorm", &l.AttentionNorm, c.Hidden)
		}
		if f.grouped {
			b.FusedGroups(l, at+"self_attention.query_key_value", c, f.bias)
		} else {
			b.Fused(l, at+"self_attention.query_key_value", c.Hidden, f.bias,
				Part{QProj, c.Heads * c.HeadDim}, Part{KProj, c.HeadDim}, Part{VProj, c.HeadDim})
		}
		b.Linear(l, OProj, at+"self_attention.dense", c.Hidden, c.Hidden, f.bias)
		b.Linear(l, UpProj, at+"mlp.dense_h_to_4h", c.Intermediate, c.Hidden, f.bias)
		b.Linear(l, DownProj, at+"mlp.dense_4h_to_h", c.Hidden, c.Intermediate, f.bias)
	}
	b.Layer(c.Layers)
	b.LayerNorm("transformer.ln_f", &n.FinalNorm, c.Hidden)
	b.bindHead(n, c)
	return n
}
