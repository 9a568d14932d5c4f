package toolcall

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// schema is what this package reads of a JSON Schema. nil is that of any value.
type schema struct {
	Type       json.RawMessage            `json:"type"` // a name or a list of them
	Ref        string                     `json:"$ref"`
	Enum       []any                      `json:"enum"`
	AnyOf      []*schema                  `json:"anyOf"`
	OneOf      []*schema                  `json:"oneOf"`
	AllOf      []*schema                  `json:"allOf"`
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	Defs       json.RawMessage            `json:"$defs"`
	OldDefs    json.RawMessage            `json:"definitions"`
}

// parseSchema is nil for what is no schema that says anything.
func parseSchema(raw json.RawMessage) *schema {
	var s *schema
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return s
}

func (s *schema) property(name string) *schema {
	if s == nil {
		return nil
	}
	return parseSchema(s.Properties[name])
}

// types adds the names of the types that the schema names, "" for what it leaves to a reference.
func (s *schema) types(to map[string]bool) map[string]bool {
	if s == nil {
		return to
	}
	var one string
	var list []string
	if json.Unmarshal(s.Type, &one) == nil {
		to[one] = true
	} else if json.Unmarshal(s.Type, &list) == nil {
		for _, t := range list {
			to[t] = true
		}
	} else {
		for _, v := range s.Enum {
			to[kind(v)] = true
		}
	}
	if s.Ref != "" {
		to[""] = true
	}
	for _, o := range slices.Concat(s.AnyOf, s.OneOf, s.AllOf) {
		o.types(to)
	}
	return to
}

func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// verbatim tells whether a value between tags is a string, which is so where the schema says
// nothing, too.
func (s *schema) verbatim() bool {
	t := s.types(map[string]bool{})
	return len(t) == 0 || len(t) == 1 && t["string"]
}

// jsonWord is a word of JSON's or Python's as it is in JSON, and another as a string.
func jsonWord(text string) string {
	if word, ok := pythonWords[text]; ok {
		return word
	}
	if json.Valid([]byte(text)) {
		return text
	}
	return `"` + escape(text) + `"`
}

// holds tells whether the schema names a type.
func (s *schema) holds(name string) bool { return s.types(map[string]bool{})[name] }

// json is the JSON of a value between tags: text that is JSON, or printed by Python, of a type that
// the schema names, or of any where it has no string; else a string.
func (s *schema) json(text string) string {
	t := s.types(map[string]bool{})
	trimmed := strings.Trim(text, space)
	for _, candidate := range []string{trimmed, python(trimmed)} {
		var v any
		if json.Unmarshal([]byte(candidate), &v) != nil {
			continue
		}
		if k := kind(v); !t["string"] || t[k] || k == "number" && t["integer"] {
			return candidate
		}
	}
	return `"` + escape(text) + `"`
}

var pythonWords = map[string]string{"True": "true", "False": "false", "None": "null"}

// python turns what Python prints of a list or a dictionary into JSON. Of other text it makes none.
func python(text string) string {
	var b strings.Builder
	for text != "" {
		switch word := text[:len(text)-len(strings.TrimLeft(text, letters))]; {
		case word != "":
			b.WriteString(cmp.Or(pythonWords[word], word))
			text = text[len(word):]
		case text[0] == '\'' || text[0] == '"':
			n := 1
			for ; n < len(text) && text[n] != text[0]; n++ {
				if text[n] == '\\' {
					n++
				}
			}
			if n >= len(text) {
				return ""
			}
			inside := strings.NewReplacer(`\\`, `\\`, `\'`, `'`, `\"`, `\"`, `"`, `\"`, `\x`, `\u00`).Replace(text[1:n])
			b.WriteString(`"` + inside + `"`)
			text = text[n+1:]
		default:
			b.WriteByte(text[0])
			text = text[1:]
		}
	}
	return b.String()
}

// definition is a property's schema, with the definitions of the whole that it may refer to.
func (s *schema) definition(name string) json.RawMessage {
	raw := s.Properties[name]
	var members map[string]json.RawMessage
	if s.Defs == nil && s.OldDefs == nil || json.Unmarshal(raw, &members) != nil {
		return raw
	}
	for key, d := range map[string]json.RawMessage{"$defs": s.Defs, "definitions": s.OldDefs} {
		if d != nil {
			members[key] = d
		}
	}
	whole, err := json.Marshal(members)
	if err != nil {
		return raw
	}
	return whole
}
