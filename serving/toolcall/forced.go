package toolcall

import (
	"encoding/json"
	"slices"

	"glimpse/model/chat"
)

// Piece is a part of what a constrained answer must look like: one of the fields is set.
type Piece struct {
	Literal      string
	Schema       json.RawMessage // JSON that it admits
	Regex        string          // text that it matches as a whole, RE2
	Alternatives [][]Piece
	Repeat       []Piece // any number of times, none too
}

// layout is how calls are written where they are forced.
type layout struct {
	prefix, suffix string // around all calls
	open, close    string // around each
	between        string
	arguments      string // key of the arguments in JSON; empty: no JSON around them
	single         bool   // templates of the family take one call only
}

// Forced is what an answer must look like that is a call of one of the tools, or with parallel one
// call or more; nil without tools. NewParser's parser reads all that it admits.
func (f Format) Forced(tools []Tool, parallel bool) []Piece {
	if len(tools) == 0 {
		return nil
	}
	calls := Piece{}
	for _, t := range tools {
		calls.Alternatives = append(calls.Alternatives, f.call(t))
	}
	pieces := append(literal(f.forced.prefix), calls)
	if parallel && !f.forced.single {
		pieces = append(pieces, Piece{Repeat: append(literal(f.forced.between), calls)})
	}
	return append(pieces, literal(f.forced.suffix)...)
}

// literal is no piece for an empty text.
func literal(text string) []Piece {
	if text == "" {
		return nil
	}
	return []Piece{{Literal: text}}
}

func (f Format) call(t Tool) []Piece {
	arguments := t.Parameters
	if len(arguments) == 0 {
		arguments = json.RawMessage(`{"type": "object"}`)
	}
	l := f.forced
	switch {
	case f.xml:
		return slices.Concat([]Piece{{Literal: l.open + functionTag + t.Name + ">\n"}}, f.parameters(arguments), []Piece{{Literal: functionEnd + l.close}})
	case l.arguments == "":
		return []Piece{{Literal: l.open + t.Name + argsMark}, {Schema: arguments}}
	}
	return []Piece{{Literal: l.open + `{"name": "` + escape(t.Name) + `", "` + l.arguments + `": `}, {Schema: arguments}, {Literal: "}" + l.close}}
}

// parameters are those of the tool in order, which is that of templates, in tags.
func (f Format) parameters(raw json.RawMessage) (pieces []Piece) {
	v, _ := chat.ParseJSON(raw)
	whole, _ := v.(chat.Object)
	v, _ = whole.Get("properties")
	properties, _ := v.(chat.Object)
	s := parseSchema(raw)
	if len(properties) == 0 || s == nil {
		return nil
	}
	line := ""
	if f.lines {
		line = "\n"
	}
	for _, e := range properties {
		value := Piece{Schema: s.definition(e.Key)}
		if p := s.property(e.Key); p.verbatim() {
			value = Piece{Regex: verbatim}
			if p != nil && p.Enum != nil {
				value = Piece{}
				for _, v := range p.Enum {
					if text, ok := v.(string); ok {
						value.Alternatives = append(value.Alternatives, literal(text))
					}
				}
			}
		}
		one := []Piece{{Literal: parameterTag + e.Key + ">" + line}, value, {Literal: line + parameterEnd + "\n"}}
		if slices.Contains(s.Required, e.Key) {
			pieces = append(pieces, one...)
		} else {
			pieces = append(pieces, Piece{Alternatives: [][]Piece{nil, one}})
		}
	}
	return pieces
}

// verbatim matches text without the end tag of a parameter, which has one '<', at its beginning.
var verbatim = func() string {
	other := `[^<>]`
	for i := len(parameterEnd) - 2; i > 0; i-- {
		c := parameterEnd[i : i+1]
		other = `(?:[^<` + c + `]|` + c + other + `)`
	}
	return `(?:[^<]|<+` + other + `)*`
}()
