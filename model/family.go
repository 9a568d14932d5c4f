package model

import (
	"encoding/json"
	"slices"

	"glimpse/internal/registry"
)

// Family is a group of models that share an architecture: one file that reads
// their config.json and says which stored tensor plays which role.
type Family struct {
	// Doc names the models, for lists of families.
	Doc string
	// Checked is what tests compare with other programs.
	Checked []Check
	// ParseConfig reads config.json. It refuses values that it does not
	// understand, by key, rather than ignore them.
	ParseConfig func(raw json.RawMessage) (*Config, error)
	// PartialRotary tells that ParseConfig reads partial_rotary_factor, which is refused
	// of others.
	PartialRotary bool
	// BOS and EOS are what bos_token_id and eos_token_id default to in transformers; nil: none.
	BOS, EOS []int32
}

// Check is what tests compare of a family's small random models with other programs.
type Check string

const (
	CheckLogits    Check = "logits"    // logits, hidden states, attention and greedy tokens, with transformers
	CheckGradients Check = "gradients" // scores and gradients of a training step, with PyTorch
	CheckGGUF      Check = "gguf"      // logits of files that llama.cpp's converter made, with transformers
)

// layout says which stored tensor plays which role in the network of a model, as its config.json has
// decided.
type layout interface {
	bind(c *Config, b *Binder) *Network
}

// Sites lists the modules of the first layer that attends in the order in which it runs them. c may be
// nil: a small model then stands for all.
func (f Family) Sites(c *Config) []Site {
	if c == nil {
		var err error
		if c, err = f.ParseConfig(json.RawMessage(`{"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "hidden_size_per_layer_input": 0}`)); err != nil {
			panic("model: a family refuses a small model: " + err.Error())
		}
	}
	one, b := *c, &Binder{}
	one.cutLayers(one.FirstAttention() + 1)
	one.layout.bind(&one, b)
	return slices.DeleteFunc(b.sites, func(s Site) bool { return s.layer < one.Layers-1 })
}

// Families maps config.json architectures[0] to the family.
var Families = registry.Registry[Family]{Noun: "architecture"}
