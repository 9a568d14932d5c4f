package toolcall

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"glimpse/model/chat"
)

// Piece is a part of the form of a constrained answer: one of the fields is set.
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
	call           forcible
	single         bool // templates of the family take one call only
}

// forcible is a way to write a call.
type forcible interface {
	// forced is what a call of the tool looks like between the marks.
	forced(t Tool) []Piece
}

// Forced is what an answer must look like that is a call of one of the tools, or with parallel one
// call or more; nil without tools. A parser reads all that it admits.
func (f Format) Forced(tools []Tool, parallel bool) []Piece {
	if len(tools) == 0 {
		return nil
	}
	calls := Piece{}
	for _, t := range tools {
		if len(t.Parameters) == 0 {
			t.Parameters = json.RawMessage(`{"type": "object"}`)
		}
		calls.Alternatives = append(calls.Alternatives, joined(slices.Concat(literal(f.forced.open), f.forced.call.forced(t), literal(f.forced.close))))
	}
	pieces := append(literal(f.forced.prefix), calls)
	if parallel && !f.forced.single {
		pieces = append(pieces, Piece{Repeat: append(literal(f.forced.between), calls)})
	}
	return append(pieces, literal(f.forced.suffix)...)
}

// Before is what an answer has before a text that it must be, or with calls before a forced call: the rest of a thought that the
// prompt has begun, unless it is to be content, and the header of a message.
func (d Dialect) Before(o Options, calls bool) []Piece {
	switch {
	case d.Calls.channels != nil && !calls:
		return literal(channelMark + "final" + messageMark)
	case d.Thoughts.Close != "" && o.Opened && !o.Inline:
		return []Piece{{Regex: without(d.Thoughts.Close)}, {Literal: d.Thoughts.Close}, {Regex: `\n{0,2}`}}
	}
	return nil
}

// literal is no piece for an empty text.
func literal(text string) []Piece {
	if text == "" {
		return nil
	}
	return []Piece{{Literal: text}}
}

// joined has literals that follow each other as one.
func joined(pieces []Piece) (out []Piece) {
	for _, p := range pieces {
		if n := len(out) - 1; n >= 0 && p.Literal != "" && out[n].Literal != "" {
			out[n].Literal += p.Literal
		} else {
			out = append(out, p)
		}
	}
	return out
}

func (c callInJSON) forced(t Tool) []Piece {
	return []Piece{{Literal: `{"name": "` + escape(t.Name) + `", "` + c.key + `": `}, {Schema: t.Parameters}, {Literal: "}"}}
}

func (callByName) forced(t Tool) []Piece {
	return []Piece{{Literal: t.Name + argsMark}, {Schema: t.Parameters}}
}

func (channels) forced(t Tool) []Piece {
	return []Piece{{Literal: channelMark + "commentary to=" + functionsOf + t.Name + " <|constrain|>json" + messageMark}, {Schema: t.Parameters}}
}

func (c callInTags) forced(t Tool) []Piece {
	line := ""
	if c.lines {
		line = "\n"
	}
	pieces := literal(functionTag + t.Name + ">\n")
	for _, m := range membersOf(t.Parameters) {
		pieces = append(pieces, m.orNone(slices.Concat(literal(parameterTag+m.key+">"+line), m.value(verbatim), literal(line+parameterEnd+"\n")))...)
	}
	return append(pieces, literal(functionEnd)...)
}

func (c callInPairs) forced(t Tool) []Piece {
	pieces := literal(t.Name + "\n")
	for _, m := range membersOf(t.Parameters) {
		pieces = append(pieces, m.orNone(slices.Concat(literal(keyTag+m.key+keyEnd+"\n"+valueTag), m.value(without(valueEnd, keyTag, c.stop)), literal(valueEnd+"\n")))...)
	}
	return pieces
}

func (c callInBraces) forced(t Tool) []Piece {
	return slices.Concat(literal(callPrefix+t.Name+"{"), c.members(membersOf(t.Parameters), true), literal("}"))
}

// members are an object's members with commas between them.
func (c callInBraces) members(list []member, first bool) []Piece {
	if len(list) == 0 {
		return nil
	}
	m, comma := list[0], ","
	if first {
		comma = ""
	}
	value := []Piece{{Schema: m.definition}}
	if m.schema.verbatim() {
		value = m.value(without(c.quote))
		value = slices.Concat(literal(c.quote), value, literal(c.quote))
	}
	one, rest := slices.Concat(literal(comma+m.key+":"), value), c.members(list[1:], false)
	if !first || m.required {
		return slices.Concat(m.orNone(one), rest)
	}
	return []Piece{{Alternatives: [][]Piece{slices.Concat(one, rest), c.members(list[1:], true)}}}
}

// member is a property of a tool's parameters.
type member struct {
	key        string
	schema     *schema
	definition json.RawMessage // the schema, with what it refers to
	required   bool
}

// membersOf are the properties in their order, which is that of templates.
func membersOf(raw json.RawMessage) (out []member) {
	v, _ := chat.ParseJSON(raw)
	whole, _ := v.(chat.Object)
	v, _ = whole.Get("properties")
	properties, _ := v.(chat.Object)
	s := parseSchema(raw)
	if s == nil {
		return nil
	}
	for _, e := range properties {
		out = append(out, member{e.Key, s.property(e.Key), s.definition(e.Key), slices.Contains(s.Required, e.Key)})
	}
	return out
}

// value is the member's without quotes: a text that the regex matches, or JSON.
func (m member) value(regex string) []Piece {
	switch {
	case !m.schema.verbatim():
		return []Piece{{Schema: m.definition}}
	case m.schema == nil || m.schema.Enum == nil:
		return []Piece{{Regex: regex}}
	}
	options := Piece{}
	for _, v := range m.schema.Enum {
		if text, ok := v.(string); ok {
			options.Alternatives = append(options.Alternatives, literal(text))
		}
	}
	return []Piece{options}
}

// orNone makes the pieces of a member that is not required optional.
func (m member) orNone(pieces []Piece) []Piece {
	if m.required {
		return pieces
	}
	return []Piece{{Alternatives: [][]Piece{nil, pieces}}}
}

// verbatim matches a value in the tags of parameters.
var verbatim = without(parameterEnd, parameterTag, functionEnd)

// without matches texts that have none of the marks, which begin with the same character and have it nowhere else.
func without(marks ...string) string {
	first := class(marks[0][:1])
	var behind func(rests []string) string
	behind = func(rests []string) string {
		var next []string
		by := map[string][]string{}
		for _, r := range rests {
			if c := r[:1]; by[c] == nil {
				next = append(next, c)
			}
			by[r[:1]] = append(by[r[:1]], r[1:])
		}
		ways := []string{`[^` + first + class(next...) + `]`}
		for _, c := range next {
			if !slices.Contains(by[c], "") {
				ways = append(ways, regexp.QuoteMeta(c)+behind(by[c]))
			}
		}
		return `(?:` + strings.Join(ways, "|") + `)`
	}
	var rests []string
	for _, m := range marks {
		rests = append(rests, m[1:])
	}
	return `(?:[^` + first + `]|[` + first + `]+` + behind(rests) + `)*`
}

// class are characters as they stand in a class of a regular expression.
func class(characters ...string) (text string) {
	for _, c := range characters {
		text += regexp.QuoteMeta(c)
		if c == "-" {
			text = strings.TrimSuffix(text, c) + `\-`
		}
	}
	return text
}
