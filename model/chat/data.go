package chat

import (
	"fmt"

	"glimpse/model/chat/jinja"
)

// Object is a JSON object that keeps the order of its keys, which templates
// print.
type Object = jinja.Object

// Member is a key of an Object and its value: nil, bool, a string, a number,
// []any, Object or map[string]any (sorted by key).
type Member = jinja.Member

// UnmarshalJSON reads a message of the usual form, {"role": …, "content": …, …}.
func (m *Message) UnmarshalJSON(data []byte) error {
	v, err := ParseJSON(data)
	if err != nil {
		return err
	}
	o, ok := v.(Object)
	if !ok {
		return fmt.Errorf("chat: JSON %s, want an object", kindName(v))
	}
	return m.fromObject(o)
}

func (m *Message) fromObject(o Object) error {
	role, _ := o.Get("role")
	name, ok := role.(string)
	if !ok {
		return fmt.Errorf("chat: message: role is %s, want a string", kindName(role))
	}
	*m = Message{Role: name}
	content, given := o.Get("content")
	m.NoContent = !given
	text, plain := content.(string)
	m.Content = text
	for _, e := range o {
		if e.Key == "role" || e.Key == "content" && plain {
			continue
		}
		m.Extra = append(m.Extra, e)
	}
	return nil
}

// ParseJSON reads one JSON value; objects become Objects, arrays []any, numbers
// int64 or float64, whole numbers beyond int64 *big.Int.
func ParseJSON(data []byte) (any, error) {
	v, err := jinja.ParseJSON(data)
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	return v, nil
}

func kindName(v any) string {
	switch v.(type) {
	case nil:
		return "missing or null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case []any:
		return "an array"
	case Object:
		return "an object"
	}
	return "a number"
}
