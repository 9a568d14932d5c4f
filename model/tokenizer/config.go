package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Config is the part of tokenizer_config.json, and of the files beside it, that
// running a model needs.
type Config struct {
	BOS, EOS, PAD, UNK string // the tokens' text; "" where the file names none
	ChatTemplate       string // Jinja source; "" where there is none
	ChatTemplateFrom   string // the file it is from, and which of its templates if that needs saying
	ChatTemplateChosen bool   // it is one of several without a default, or not the files' own
	ModelMaxLength     int    // tokens; 0 where the file gives none or a stand-in for none
}

// namedToken is a token in tokenizer_config.json: its text, or an object with the
// text and the flags of an added token.
type namedToken struct {
	addedToken
}

func (t *namedToken) UnmarshalJSON(data []byte) error {
	var s *string
	if err := json.Unmarshal(data, &s); err == nil {
		if s != nil {
			t.Content = *s
		}
		return nil
	}
	if err := json.Unmarshal(data, &t.addedToken); err != nil {
		return fmt.Errorf("token is neither a string nor an object with a content: %s", shorten(data))
	}
	return nil
}

// namedTokens is a list of them, or an object whose values are taken.
type namedTokens []namedToken

func (t *namedTokens) UnmarshalJSON(data []byte) error {
	var list []namedToken
	if err := json.Unmarshal(data, &list); err == nil {
		*t = list
		return nil
	}
	if data[0] != '{' {
		return fmt.Errorf("special tokens are neither a list nor an object: %s", shorten(data))
	}
	return members(data, func(_ string, token namedToken) { *t = append(*t, token) })
}

func shorten(data []byte) string {
	const shown = 60
	if len(data) > shown {
		return string(data[:shown]) + "…"
	}
	return string(data)
}

// specialNames are the special tokens by role, in tokenizer_config.json and
// special_tokens_map.json.
type specialNames struct {
	BOS        namedToken  `json:"bos_token"`
	EOS        namedToken  `json:"eos_token"`
	UNK        namedToken  `json:"unk_token"`
	SEP        namedToken  `json:"sep_token"`
	PAD        namedToken  `json:"pad_token"`
	CLS        namedToken  `json:"cls_token"`
	MASK       namedToken  `json:"mask_token"`
	Additional namedTokens `json:"additional_special_tokens"`
	Extra      namedTokens `json:"extra_special_tokens"`
}

// configFile is tokenizer_config.json.
type configFile struct {
	specialNames
	Class          string                `json:"tokenizer_class"`
	AddBOS         json.RawMessage       `json:"add_bos_token"`
	AddEOS         json.RawMessage       `json:"add_eos_token"`
	AddPrefixSpace bool                  `json:"add_prefix_space"`
	ChatTemplate   templateList          `json:"chat_template"`
	ModelMaxLength float64               `json:"model_max_length"`
	AddedByID      map[string]addedToken `json:"added_tokens_decoder"`
	// Doubled are ids whose token another id has, too, as only the vocabulary of a GGUF file can say: they are decoded as that one.
	Doubled map[int]int `json:"doubled_tokens"`

	read  bool         // there is such a file
	Added []addedToken `json:"-"` // AddedByID, or added_tokens.json, in order of id
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
	c.read = true
	for key, a := range c.AddedByID {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("added_tokens_decoder: key %q is not an id", key)
		}
		a.ID = int(id)
		c.Added = append(c.Added, a)
	}
	sortByID(c.Added)
	return &c, nil
}

// prefixSpace returns the add_prefix_space that replaces that of a ByteLevel which is
// the whole pre-tokenizer, nil for none. transformers 4.57 does so with every folder,
// and takes no setting for false.
func (c *configFile) prefixSpace() *bool {
	if !c.read {
		return nil
	}
	return &c.AddPrefixSpace
}

// applyConfig takes over what tokenizer_config.json says.
func (t *Tokenizer) applyConfig(c *configFile) error {
	t.config = Config{BOS: c.BOS.Content, EOS: c.EOS.Content, PAD: c.PAD.Content, UNK: c.UNK.Content}
	class, affixes := affixClasses[strings.TrimSuffix(c.Class, "Fast")]
	if affixes { // it has tokens of its own where the file names none
		for token, own := range map[*string]string{&t.config.BOS: class.bos, &t.config.EOS: class.eos} {
			if _, ok := t.TokenToID(own); ok && *token == "" {
				*token = own
			}
		}
	}
	if err := t.config.takeTemplate(c.ChatTemplate, "tokenizer_config.json"); err != nil {
		return err
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
	if !affixes {
		return nil
	}
	var err error
	if t.prefix, err = t.affix("add_bos_token", c.AddBOS, class.addBOS, t.config.BOS); err != nil {
		return err
	}
	t.suffix, err = t.affix("add_eos_token", c.AddEOS, false, t.config.EOS)
	return err
}

// affixClasses are the tokenizer classes of transformers that put their own post-processor in
// the place of the file's: what add_bos_token is where it is absent, and the tokens that a file
// does not name. add_eos_token is false where it is absent. Other classes leave the
// post-processor alone, and the two settings mean nothing.
var affixClasses = map[string]struct {
	addBOS   bool
	bos, eos string
}{
	"LlamaTokenizer":     {true, "<s>", "</s>"},
	"CodeLlamaTokenizer": {true, "<s>", "</s>"},
	"GemmaTokenizer":     {true, "<bos>", "<eos>"},
	"CohereTokenizer":    {true, "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"},
	"GPTNeoXTokenizer":   {false, "<|endoftext|>", "<|endoftext|>"},
}

// affix is what a setting puts around a text; null is false. Where the token is missing that only
// the class asks for, there is nothing.
func (t *Tokenizer) affix(field string, setting json.RawMessage, absent bool, token string) ([]int32, error) {
	want := absent && setting == nil
	if setting != nil && json.Unmarshal(setting, &want) != nil {
		return nil, fmt.Errorf("%s: got %s, want true or false", field, shorten(setting))
	}
	id, ok := t.TokenToID(token)
	switch {
	case want && ok:
		return []int32{id}, nil
	case want && setting != nil:
		return nil, fmt.Errorf("%s is set, but there is no such token", field)
	}
	return nil, nil
}

// llamaTypes are the types of models whose tokenizer is of transformers' class LlamaTokenizer
// where no file names one.
var llamaTypes = []string{"llama", "mistral", "ministral", "phi3"}

// tokenizerClass is the tokenizer class that config.json names, or else that of its type of model; ""
// is none that matters here.
func tokenizerClass(modelConfig []byte) string {
	var c struct {
		Class string `json:"tokenizer_class"`
		Type  string `json:"model_type"`
	}
	if json.Unmarshal(modelConfig, &c) == nil && c.Class == "" && slices.Contains(llamaTypes, c.Type) {
		return "LlamaTokenizer"
	}
	return c.Class // config.json is judged by whoever reads the model
}
