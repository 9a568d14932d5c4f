package datasets

import (
	"encoding/json"
	"fmt"
)

// shareGPTRoles are the speakers of ShareGPT files by the names that occur.
var shareGPTRoles = map[string]string{
	"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "model": "assistant",
	"bard": "assistant", "bing": "assistant", "system": "system",
}

// parseConversation reads both ShareGPT variants.
func parseConversation(o object, name string, form PromptForm) ([]Message, error) {
	var items []json.RawMessage
	if err := o.decode(name, "an array of objects", &items); err != nil {
		return nil, err
	}
	var out []Message
	for i, item := range items {
		fields, err := parseObject(item)
		if err != nil {
			return nil, fmt.Errorf("field %q: element %d: %w", name, i, err)
		}
		fail := func(err error) error { return fmt.Errorf("field %q: element %d: %w", name, i, err) }
		if form == formConversation {
			var human, assistant string
			if err := fields.decodeAll([]field{{"human", "a string", &human}, {"assistant", "a string", &assistant}}); err != nil {
				return nil, fail(err)
			}
			out = append(out, Message{"user", human}, Message{"assistant", assistant})
			continue
		}
		var from string
		var m Message
		if err := fields.decodeAll([]field{{"from", "a string", &from}, {"value", "a string", &m.Content}}); err != nil {
			return nil, fail(err)
		}
		var ok bool
		if m.Role, ok = shareGPTRoles[from]; !ok {
			return nil, fail(fmt.Errorf(`field "from": got %q, want human, gpt or system`, from))
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("field %q: got no messages, want at least one", name)
	}
	return out, nil
}
