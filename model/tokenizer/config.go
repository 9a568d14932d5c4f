package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Config is the part of tokenizer_config.json that running a model needs.
type Config struct {
	BOS, EOS, PAD, UNK string // the tokens' text; "" where the file names none
	ChatTemplate       string // Jinja source; "" where there is none
	ModelMaxLength     int    // tokens; 0 where the file gives none or a stand-in for none
}

// tokenText is a token in tokenizer_config.json: its text, or an object with
// the text and the flags of an added token.
type tokenText string

func (t *tokenText) UnmarshalJSON(data []byte) error {
	var s *string
	if err := json.Unmarshal(data, &s); err == nil {
		if s != nil {
			*t = tokenText(*s)
		}
		return nil
	}
	var o struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return fmt.Errorf("token is neither a string nor an object with a content: %s", shorten(data))
	}
	*t = tokenText(o.Content)
	return nil
}

// templateText is a chat template: its source, or a list of named ones of which
// "default" is taken.
type templateText string

func (t *templateText) UnmarshalJSON(data []byte) error {
	var s *string
	if err := json.Unmarshal(data, &s); err == nil {
		if s != nil {
			*t = templateText(*s)
		}
		return nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("chat_template is neither a string nor a list of named templates: %s", shorten(data))
	}
	for _, e := range list {
		if e.Name == "default" {
			*t = templateText(e.Template)
			return nil
		}
	}
	return fmt.Errorf("chat_template lists %d templates, none named \"default\"", len(list))
}

func shorten(data []byte) string {
	const shown = 60
	if len(data) > shown {
		return string(data[:shown]) + "…"
	}
	return string(data)
}

// configFile is tokenizer_config.json.
type configFile struct {
	Class          string                `json:"tokenizer_class"`
	AddBOS         *bool                 `json:"add_bos_token"`
	AddEOS         *bool                 `json:"add_eos_token"`
	BOS            tokenText             `json:"bos_token"`
	EOS            tokenText             `json:"eos_token"`
	PAD            tokenText             `json:"pad_token"`
	UNK            tokenText             `json:"unk_token"`
	ChatTemplate   templateText          `json:"chat_template"`
	ModelMaxLength float64               `json:"model_max_length"`
	AddedByID      map[string]addedToken `json:"added_tokens_decoder"`

	Added []addedToken `json:"-"` // AddedByID in order of id
}

// parseConfig reads tokenizer_config.json; its many other fields do not change
// how text is encoded by the fast tokenizers. Nil data is an empty file.
func parseConfig(data []byte) (*configFile, error) {
	var c configFile
	if data == nil {
		return &c, nil
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, describeJSON(data, err)
	}
	for key, a := range c.AddedByID {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("added_tokens_decoder: key %q is not an id", key)
		}
		a.ID = int(id)
		c.Added = append(c.Added, a)
	}
	slices.SortFunc(c.Added, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
	return &c, nil
}

// applyConfig takes over what tokenizer_config.json says.
func (t *Tokenizer) applyConfig(c *configFile) error {
	t.config = Config{
		BOS: string(c.BOS), EOS: string(c.EOS), PAD: string(c.PAD), UNK: string(c.UNK),
		ChatTemplate: string(c.ChatTemplate),
	}
	// transformers writes 1e30 for "no limit".
	if c.ModelMaxLength >= 1 && c.ModelMaxLength < 1<<31 {
		t.config.ModelMaxLength = int(c.ModelMaxLength)
	}
	for _, named := range []struct {
		field, token string
		needed       bool
	}{
		{"bos_token", t.config.BOS, true}, {"eos_token", t.config.EOS, true},
		{"pad_token", t.config.PAD, false}, {"unk_token", t.config.UNK, false},
	} {
		if named.token == "" {
			continue
		}
		id, ok := t.TokenToID(named.token)
		if !ok {
			// Nothing here pads, and many folders name a padding token that
			// the model has never had.
			if !named.needed {
				continue
			}
			return fmt.Errorf("%s %q is not in the vocabulary", named.field, named.token)
		}
		// transformers makes these special whatever added_tokens says.
		t.special[id] = true
	}
	return t.applyAffixes(c.Class, c.AddBOS, c.AddEOS)
}

// applyAffixes does what transformers' Llama tokenizer class does: its
// add_bos_token and add_eos_token replace the file's post-processor. The generic
// classes leave the post-processor alone and the two settings mean nothing.
func (t *Tokenizer) applyAffixes(class string, addBOS, addEOS *bool) error {
	llama := class == "LlamaTokenizer" || class == "LlamaTokenizerFast" || class == "CodeLlamaTokenizer" || class == "CodeLlamaTokenizerFast"
	if !llama || addBOS == nil && addEOS == nil {
		return nil
	}
	affix := func(field, token string, want bool) ([]int32, error) {
		if !want {
			return nil, nil
		}
		id, ok := t.TokenToID(token)
		if !ok {
			return nil, fmt.Errorf("%s is set, but there is no such token", field)
		}
		return []int32{id}, nil
	}
	var err error
	if t.prefix, err = affix("add_bos_token", t.config.BOS, addBOS == nil || *addBOS); err != nil {
		return err
	}
	t.suffix, err = affix("add_eos_token", t.config.EOS, addEOS != nil && *addEOS)
	return err
}
