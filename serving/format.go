package serving

import (
	"context"
	"encoding/json"
	"slices"

	"glimpse/model"
	"glimpse/serving/constraint"
)

// responseFormat is what an answer must look like, as OpenAI's API says it.
type responseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *jsonSchema `json:"json_schema"`
	// Schema of json_object, as llama.cpp and Together have it.
	Schema json.RawMessage `json:"schema"`
	Unread unread          `json:",embed"`
}

type jsonSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Strict      *bool           `json:"strict"`
	Unread      unread          `json:",embed"`
}

// structured is what an answer must look like, as vLLM's API says it: one of the fields.
type structured struct {
	JSON       json.RawMessage `json:"json"`
	JSONObject bool            `json:"json_object"`
	Regex      string          `json:"regex"`
	Choice     []string        `json:"choice"`
	Grammar    string          `json:"grammar"`
	Unread     unread          `json:",embed"`
}

// ofText reads the format of /v1/responses, whose schema stands beside its type.
func (f *responseFormat) ofText(ctx context.Context, raw json.RawMessage) error {
	var flat struct {
		Type string `json:"type"`
		jsonSchema
	}
	if err := decodeJSON(ctx, "text.format", raw, &flat); err != nil {
		return err
	}
	f.Type, f.Schema = flat.Type, flat.Schema
	if flat.Schema != nil {
		f.JSONSchema = &flat.jsonSchema
	}
	return nil
}

// grammar is the language of a format; nil where nothing is asked for.
func (f *responseFormat) grammar() (*constraint.Grammar, error) {
	if f == nil {
		return nil, nil
	}
	var s jsonSchema
	switch f.Type {
	case "", "text":
		return nil, nil
	case "json_object":
		if !given(f.Schema) {
			return constraint.Object(), nil
		}
		s.Schema = f.Schema
	case "json_schema":
		if f.JSONSchema == nil || !given(f.JSONSchema.Schema) {
			return nil, refuse("response_format", "json_schema: is missing")
		}
		s = *f.JSONSchema
	default:
		return nil, refuse("response_format", "got type %q, want text, json_object or json_schema", f.Type)
	}
	grammar, err := constraint.Schema(s.Schema, or(s.Strict, false))
	if err != nil {
		return nil, refuse("response_format", "%v", err)
	}
	return grammar, nil
}

// fieldCount is the number of fields that have a value.
func (t *structured) fieldCount() (n int) {
	for _, is := range []bool{given(t.JSON), t.JSONObject, t.Regex != "", len(t.Choice) > 0, t.Grammar != ""} {
		if is {
			n++
		}
	}
	return n
}

// grammar is the same of vLLM's fields.
func (t *structured) grammar() (grammar *constraint.Grammar, err error) {
	if t == nil {
		return nil, nil
	}
	const param = "structured_outputs"
	if n := t.fieldCount(); n != 1 {
		return nil, refuse(param, "got %d of json, json_object, regex, choice and grammar, want one", n)
	}
	switch {
	case given(t.JSON):
		grammar, err = constraint.Schema(t.JSON, false)
	case t.JSONObject:
		grammar = constraint.Object()
	case t.Regex != "":
		grammar, err = constraint.Regex(t.Regex)
	case len(t.Choice) > 0:
		grammar = constraint.Choice(t.Choice...)
	default:
		grammar, err = constraint.GBNF(t.Grammar)
	}
	if err != nil {
		return nil, refuse(param, "%v", err)
	}
	return grammar, nil
}

// constrain lets answers be texts of a grammar alone; err says what is wrong with it. A nil grammar constrains nothing.
func (x *exchange) constrain(grammar *constraint.Grammar, err error) error {
	if grammar == nil || err != nil {
		return err
	}
	if x.grammar != nil {
		return refuse("structured_outputs", "got response_format or tool_choice, too: want one of them")
	}
	x.grammar = grammar
	return nil
}

// makeConstraint makes the grammar's, over a vocabulary that has the tokens which are kept.
func (x *exchange) makeConstraint() error {
	if x.grammar == nil {
		return nil
	}
	v, err := x.server.vocabulary(x.keep)
	if err != nil {
		return err
	}
	x.constraint = func() model.Constraint { return constraint.NewAhead(x.grammar, v) }
	return nil
}

// vocabulary is the model's, in which special tokens are no text but for those that are kept.
func (s *Server) vocabulary(keep []int32) (*constraint.Vocabulary, error) {
	s.wordsMu.Lock()
	defer s.wordsMu.Unlock()
	if s.words != nil && slices.Equal(s.kept, keep) {
		return s.words, nil
	}
	t, err := s.model.NeedTokenizer()
	if err != nil {
		return nil, refuse("", "%v", err)
	}
	pieces := make([][]byte, t.VocabSize())
	for id := range pieces {
		if id := int32(id); !t.IsSpecial(id) || slices.Contains(keep, id) {
			pieces[id] = []byte(t.Piece(id))
		}
	}
	s.words, s.kept = constraint.NewVocabulary(pieces, s.model.Config.EOS), keep
	return s.words, nil
}
