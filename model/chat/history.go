package chat

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// form is how messages with calls of tools are shown to a template. OpenAI's API has arguments as JSON text and content
// that is null or absent; most templates want an object and a text, and some want what others fail on.
type form struct {
	text bool // arguments are JSON text
	null bool // content beside calls, where there is none, is null
}

// forms in the order in which they are tried.
var forms = []form{{}, {null: true}, {text: true}, {text: true, null: true}}

// What the messages of a probe say, which no template has of itself.
const (
	probeText = "qzxprobetext"
	probeName = "qzxprobename"
	probeKey  = "qzxprobekey"
)

// form finds the first of the forms in which the template tells of a call, once for a template.
func (t *Template) form() form {
	t.formOnce.Do(func() {
		if !t.template.Names("tool_calls") {
			return
		}
		call := Object{{Key: "id", Value: "callid123"}, {Key: "type", Value: "function"}, {Key: "function", Value: Object{
			{Key: "name", Value: probeName}, {Key: "arguments", Value: Object{{Key: probeKey, Value: "v"}}},
		}}}
		messages := []Message{
			{Role: "user", Content: "u"}, {Role: "assistant", NoContent: true, Extra: Object{{Key: "tool_calls", Value: []any{call}}}},
			{Role: "tool", Content: "r", Extra: Object{{Key: "tool_call_id", Value: "callid123"}, {Key: "name", Value: probeName}}},
		}
		for _, f := range forms {
			for n := len(messages); n > 1; n-- { // of templates that refuse the role tool
				text, err := t.renderAs(context.Background(), f, messages[:n], t.probing())
				if err == nil && strings.Contains(text, probeName) && strings.Contains(text, probeKey) {
					t.chosen = f
					return
				}
			}
		}
	})
	return t.chosen
}

// probing are options of a conversation that is rendered for its form alone.
func (t *Template) probing() Options {
	return Options{BOS: "<s>", EOS: "</s>", Now: time.Unix(0, 0)}
}

// shown is a message as the template is shown it: calls in their form, thoughts by the name that the template reads, and
// null content as none.
func (t *Template) shown(m Message, f form) Message {
	m.Extra = slices.Clone(m.Extra)
	calls := false
	if i := index(m.Extra, "tool_calls"); i >= 0 {
		list, isList := m.Extra[i].Value.([]any)
		if calls = len(list) > 0; calls {
			m.Extra[i].Value = callsAs(list, f)
		} else if isList || m.Extra[i].Value == nil { // there are none
			m.Extra = slices.Delete(m.Extra, i, i+1)
		}
	}
	i := index(m.Extra, "content")
	if i >= 0 && m.Extra[i].Value == nil {
		m.Extra, m.NoContent = slices.Delete(m.Extra, i, i+1), calls
	}
	if calls && m.NoContent {
		if m.NoContent = false; f.null {
			m.Extra = append(Object{{Key: "content"}}, m.Extra...)
		}
	}
	t.nameThoughts(&m, calls && m.Content != "")
	return m
}

// thoughtKeys are the names of a message's thoughts in APIs and templates.
var thoughtKeys = []string{"reasoning_content", "reasoning", "thinking"}

// nameThoughts gives a message's thoughts by a name that the template reads, too. Of a message that has text and calls
// the name thinking is left out: gpt-oss' template raises for all three.
func (t *Template) nameThoughts(m *Message, all bool) {
	var thoughts string
	for _, key := range thoughtKeys {
		if v, _ := m.Extra.Get(key); v != nil {
			if t.template.Names(key) {
				return
			}
			thoughts, _ = v.(string)
		}
	}
	for _, key := range thoughtKeys {
		if thoughts != "" && t.template.Names(key) && !(all && key == "thinking") {
			m.Extra = append(m.Extra, Member{Key: key, Value: thoughts})
			return
		}
	}
}

// callsAs are calls with arguments in the form. Arguments that are no object stay what they are, except for none: {}.
func callsAs(list []any, f form) []any {
	out := slices.Clone(list)
	for i, call := range out {
		o, ok := call.(Object)
		if !ok {
			continue
		}
		if function, _ := o.Get("function"); function != nil {
			if function, ok := function.(Object); ok {
				o = with(o, "function", argumentsAs(function, f))
			}
		} else {
			o = argumentsAs(o, f)
		}
		out[i] = o
	}
	return out
}

func argumentsAs(function Object, f form) Object {
	arguments, _ := function.Get("arguments")
	text, isText := arguments.(string)
	if arguments == nil || isText && text == "" {
		arguments, isText, text = Object{}, true, "{}"
	} else if isText {
		if v, err := ParseJSON([]byte(text)); err == nil {
			if o, ok := v.(Object); ok {
				arguments = o
			}
		}
	}
	if f.text && !isText {
		raw, err := json.Marshal(arguments)
		if err == nil {
			err = (*jsontext.Value)(&raw).Format(jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true)) // as Python's
		}
		if err != nil {
			return function
		}
		arguments = string(raw)
	} else if f.text {
		arguments = text
	}
	return with(function, "arguments", arguments)
}

// with is a copy of an object with another value of a key.
func with(o Object, key string, value any) Object {
	o = slices.Clone(o)
	if i := index(o, key); i >= 0 {
		o[i].Value = value
		return o
	}
	return append(o, Member{Key: key, Value: value})
}

// index finds the last member with the key; -1: there is none.
func index(o Object, key string) int {
	for i := len(o) - 1; i >= 0; i-- {
		if o[i].Key == key {
			return i
		}
	}
	return -1
}
