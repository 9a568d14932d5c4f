package serving

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// turn is a message as the chat API has it, which other APIs' conversations are translated to.
type turn struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
	CallID    string     `json:"tool_call_id,omitempty"`
	Name      string     `json:"name,omitempty"` // of the function that a result is of

	parts []markedPart // of Content
}

// markedPart is a part of a text, in bytes, that is to be cached or stays whatever a policy says.
type markedPart struct {
	from, to     int
	cached, stay bool
}

// MarshalJSON writes content with marked parts in parts.
func (t turn) MarshalJSON() ([]byte, error) {
	type plain turn
	if t.parts == nil {
		return json.Marshal(plain(t))
	}
	type part struct {
		Type         string `json:"type"`
		Text         string `json:"text"`
		CacheControl any    `json:"cache_control,omitempty"`
		Keep         bool   `json:"keep,omitempty"`
	}
	var parts []part
	at := 0
	text := func(to int) {
		if to > at {
			parts = append(parts, part{Type: "text", Text: (*t.Content)[at:to]})
		}
		at = to
	}
	for _, p := range t.parts {
		text(p.from)
		text(p.to)
		if last := &parts[len(parts)-1]; p.cached {
			last.CacheControl = fields{"type": "ephemeral"}
		}
		parts[len(parts)-1].Keep = p.stay
	}
	text(len(*t.Content))
	return json.Marshal(struct {
		plain
		Content []part `json:"content"`
	}{plain(t), parts})
}

// turns are a conversation as it is told part by part.
type turns struct {
	all   []turn
	names map[string]string // of functions, by the calls' ids
}

// say adds what a role says. Texts of the system, and of an assistant that had none, are of one message with those just before: many
// templates know no other.
func (t *turns) say(role string, said content) {
	if role == "developer" {
		role = "system"
	}
	text := said.text
	last := t.last(role)
	switch {
	case last == nil || role != "system" && (role != "assistant" || last.Content != nil):
		t.all = append(t.all, turn{Role: role})
		last = t.last(role)
	case last.Content != nil:
		text = *last.Content + "\n\n" + text
	}
	last.Content = &text
	for _, p := range said.parts {
		p.from, p.to = p.from+len(text)-len(said.text), p.to+len(text)-len(said.text)
		last.parts = append(last.parts, p)
	}
}

// last is the last message, if it has the role.
func (t *turns) last(role string) *turn {
	if n := len(t.all) - 1; n >= 0 && t.all[n].Role == role {
		return &t.all[n]
	}
	return nil
}

// assistant is the message that an assistant goes on with.
func (t *turns) assistant() *turn {
	if last := t.last("assistant"); last != nil {
		return last
	}
	t.all = append(t.all, turn{Role: "assistant"})
	return t.last("assistant")
}

// think adds thoughts of the assistant, before what it says.
func (t *turns) think(text string) {
	a := t.last("assistant")
	if a == nil || a.Content != nil || a.ToolCalls != nil {
		t.all = append(t.all, turn{Role: "assistant"})
		a = t.last("assistant")
	}
	a.Reasoning += text
}

// addCall adds a call of the assistant.
func (t *turns) addCall(id, name, arguments string) {
	a := t.assistant()
	a.ToolCalls = append(a.ToolCalls, toolCall{ID: id, Type: "function", Function: functionCall{name, arguments}})
	if t.names == nil {
		t.names = make(map[string]string)
	}
	t.names[id] = name
}

// result adds what a call has given. ok is false where there is no such call.
func (t *turns) result(id, text string) (ok bool) {
	name, ok := t.names[id]
	t.all = append(t.all, turn{Role: "tool", Content: &text, CallID: id, Name: name})
	return ok
}

// endTurns gives an answer that has thoughts alone a text, which every message has but one with calls.
func (t *turns) endTurns() {
	for i := range t.all {
		if a := &t.all[i]; a.Content == nil && a.ToolCalls == nil {
			a.Content = new(string)
		}
	}
}

// from are the messages of the system and the last ones from the i-th on, of a conversation that is too long.
func (t *turns) from(i int) []turn {
	if i > 0 && len(t.all) > 0 && t.all[0].Role == "system" {
		return append([]turn{t.all[0]}, t.all[i:]...)
	}
	return t.all[i:]
}

// begins tells whether the turns may begin with the i-th: not with a call's result, or an answer.
func (t *turns) begins(i int) bool { return t.all[i].Role == "user" }

// functionTool is a tool as the chat API has it.
type functionTool struct {
	Type     string       `json:"type"`
	Function functionSpec `json:"function"`
}

type functionSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      bool            `json:"strict,omitempty"`
}

// content is what a message says.
type content struct {
	text    string
	inParts bool
	parts   []markedPart
}

// add adds a part to the text.
func (c *content) add(text string, stay bool, cacheControl json.RawMessage) {
	p := markedPart{from: len(c.text), to: len(c.text) + len(text), cached: given(cacheControl), stay: stay}
	if c.text += text; text != "" && (p.cached || p.stay) {
		c.parts = append(c.parts, p)
	}
}

// marked are the first bytes of the text, up to the end of the last part that is to be cached; 0: none is.
func (c *content) marked() (end int) {
	for _, p := range c.parts {
		if p.cached {
			end = p.to
		}
	}
	return end
}

// readContent reads a content, the field "at" of a request: a text, or a list of parts, whose texts are joined.
func readContent(ctx context.Context, at string, raw json.RawMessage) (c content, err error) {
	var parts []struct {
		Type   string `json:"type"`
		Text   string `json:"text"`
		Keep   bool   `json:"keep"`
		Unread unread `json:",embed"`
		quietPart
	}
	switch jsontext.Value(raw).Kind() {
	case 'n', jsontext.KindInvalid:
		return c, nil
	case '"':
		return c, decodeJSON(ctx, at, raw, &c.text)
	case '[':
		c.inParts = true
		if err := decodeJSON(ctx, at, raw, &parts); err != nil {
			return c, err
		}
	default:
		return c, refuse(at, "got %.40s, want a text or a list of parts", raw)
	}
	for i, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text", "reasoning_text", "summary_text":
			c.add(p.Text, p.Keep, p.CacheControl)
		default:
			return c, refuse(fmt.Sprintf("%s[%d]", at, i), "got a part of type %q, want text", p.Type)
		}
	}
	return c, nil
}

// quietPart is what parts have that says nothing: of an answer that comes back, and where a context ends.
type quietPart struct {
	Annotations  json.RawMessage `json:"annotations"`
	LogProbs     json.RawMessage `json:"logprobs"`
	Citations    json.RawMessage `json:"citations"`
	CacheControl json.RawMessage `json:"cache_control"`
}
