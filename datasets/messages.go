package datasets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Message is one turn of a chat.
type Message struct {
	Role string // "user", "assistant", "system", or what the chat template knows
	// Content is what is said, may be empty; of content in parts, their texts one after another.
	Content string
	// NoContent: the turn has no content, which templates tell from empty text.
	NoContent bool
	// Extra are the turn's other fields that are not null, such as tool_calls and
	// reasoning_content, in their order. One named content stands in Content's place: null, or a
	// list of parts.
	Extra []Field
}

// Field is a field of a JSON object.
type Field struct {
	Name  string
	Value json.RawMessage // valid JSON
}

// prependText puts text before what is said.
func (m *Message) prependText(text string) error {
	i := slices.IndexFunc(m.Extra, func(f Field) bool { return f.Name == "content" })
	m.Content, m.NoContent = text+m.Content, false
	if i < 0 {
		return nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(m.Extra[i].Value, &parts); err != nil {
		return err
	}
	if parts == nil { // null
		m.Extra = slices.Delete(slices.Clone(m.Extra), i, i+1)
		return nil
	}
	part, err := json.Marshal(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text", text})
	if err != nil {
		return err
	}
	m.Extra = slices.Clone(m.Extra)
	m.Extra[i].Value = joinRaw(append([]json.RawMessage{part}, parts...))
	return nil
}

// parseMessages reads the turns of a chat: a list, or the JSON text of one, of
//
//	{"role": "user", "content": "…"}
//	{"from": "human", "value": "…"}
//	{"human": "…", "assistant": "…"}
func parseMessages(o object, name string) ([]Message, error) {
	var items []json.RawMessage
	if err := (object{name: unquoted(o[name])}).decode(name, "an array of objects", &items); err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("field %q: got no messages, want at least one", name)
	}
	messages := make([]Message, 0, len(items))
	for i, item := range items {
		turns, err := parseTurn(item)
		if err != nil {
			return nil, fmt.Errorf("field %q: element %d: %w", name, i, err)
		}
		messages = append(messages, turns...)
	}
	return messages, nil
}

// unquoted is the list that a string holds as JSON, which is how columns of one type hold lists of
// objects of several; otherwise raw.
func unquoted(raw json.RawMessage) json.RawMessage {
	var text string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return raw
	}
	if text = strings.TrimSpace(text); strings.HasPrefix(text, "[") && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return raw
}

func parseTurn(raw json.RawMessage) ([]Message, error) {
	o, fields, err := parseFields(raw)
	if err != nil {
		return nil, err
	}
	var m Message
	switch {
	case o.hasField("human"):
		return parseExchange(o)
	case o.hasField("from"):
		err = m.readShareGPT(o)
	default:
		if m.Role, err = o.requiredText("role"); err == nil {
			err = m.readContent(o, len(fields) > 1)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if !slices.Contains([]string{"role", "content", "from", "value"}, f.Name) {
			m.Extra = append(m.Extra, f)
		}
	}
	return []Message{m}, nil
}

// hasField tells whether the object has a field that is not null.
func (o object) hasField(name string) bool {
	raw, ok := o[name]
	return ok && string(raw) != "null"
}

// parseFields reads an object, and returns also its fields that are not null, in their order.
// Columns of one type have null for what a row does not have. A field with NaN or Infinity, which
// no JSON can hold, is as good as null: logs of probabilities have them.
func parseFields(raw json.RawMessage) (object, []Field, error) {
	o, names, err := orderedObject(raw)
	var fields []Field
	for _, name := range names {
		if masked, _ := maskNonFinite(o[name]); o.hasField(name) && bytes.Equal(masked, o[name]) {
			fields = append(fields, Field{name, o[name]})
		}
	}
	return o, fields, err
}

// readContent reads content: a string, or a list of parts. An assistant may say nothing where the
// turn has more, such as tool_calls.
func (m *Message) readContent(o object, more bool) error {
	raw, ok := o["content"]
	switch {
	case !o.hasField("content") && m.Role == "assistant" && more:
		if m.NoContent = !ok; ok {
			m.Extra = []Field{{"content", raw}}
		}
		return nil
	case !ok || raw[0] != '[':
		return o.decode("content", "a string or a list of parts", &m.Content)
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	for i, part := range parts {
		said, err := m.readPart(part)
		if err != nil {
			return fmt.Errorf(`field "content": part %d: %w`, i, err)
		}
		parts[i] = said
	}
	m.Extra = []Field{{"content", joinRaw(parts)}}
	return nil
}

// media are the kinds of parts that a model of text cannot read.
var media = []string{"image", "audio", "video", "file"}

// isMedia tells that a part of the name is one of media, as image_url and input_audio are.
func isMedia(name string) bool {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "input_"), "_url")
	return slices.Contains(media, name)
}

// readPart adds the text of a part of the content, and returns the part without fields that are null.
func (m *Message) readPart(raw json.RawMessage) (json.RawMessage, error) {
	o, fields, err := parseFields(raw)
	if err != nil {
		return nil, err
	}
	var kind string
	if err := o.decode("type", "a string", &kind); err != nil {
		return nil, err
	}
	if kind == "text" {
		var text string
		if err := o.decode("text", "a string", &text); err != nil {
			return nil, err
		}
		m.Content += text
	}
	var b bytes.Buffer
	for i, f := range fields {
		if isMedia(f.Name) {
			kind = f.Name
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		b.WriteByte("{,"[min(i, 1)])
		b.Write(name)
		b.WriteByte(':')
		b.Write(f.Value)
	}
	b.WriteByte('}')
	if isMedia(kind) {
		return nil, fmt.Errorf("got %q, want text, which is all that models read here", kind)
	}
	return b.Bytes(), nil
}
