package datasets

import (
	"encoding/json"
	"fmt"
	"strings"
)

// shareGPTRoles are the speakers of ShareGPT files by the names that occur, in lower case.
var shareGPTRoles = map[string]string{
	"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "model": "assistant",
	"bard": "assistant", "bing": "assistant", "system": "system",
	"function_call": "assistant", "tool_call": "assistant",
	"observation": "tool", "tool": "tool", "tool_response": "tool", "function_response": "tool",
}

// readShareGPT reads {"from": "human", "value": "…"}. What function_call says becomes tool_calls
// where it is a call, {"name", "arguments"}, or a list of them.
func (m *Message) readShareGPT(o object) error {
	var from string
	if err := o.decodeAll([]field{{"from", "a string", &from, false}, {"value", "a string", &m.Content, false}}); err != nil {
		return err
	}
	var ok bool
	speaker := strings.ToLower(from)
	if m.Role, ok = shareGPTRoles[speaker]; !ok {
		return fmt.Errorf(`field "from": got %q, want human, gpt, system, function_call or observation`, from)
	}
	if !strings.HasSuffix(speaker, "_call") {
		return nil
	}
	if calls := toolCalls(m.Content); calls != nil {
		m.Content = ""
		m.Extra = append(m.Extra, Field{"tool_calls", calls})
	}
	return nil
}

// toolCalls is the list of tool_calls for what a ShareGPT file calls, nil where the text is no call.
func toolCalls(text string) json.RawMessage {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") {
		text = "[" + text + "]"
	}
	var items, calls []json.RawMessage
	if json.Unmarshal([]byte(text), &items) != nil {
		return nil
	}
	for _, item := range items {
		o, err := parseObject(item)
		if err != nil || !o.hasField("name") {
			return nil
		}
		if !o.hasField("arguments") {
			o["arguments"] = json.RawMessage("{}")
		}
		calls = append(calls, json.RawMessage(fmt.Sprintf(`{"type":"function","function":{"name":%s,"arguments":%s}}`, o["name"], o["arguments"])))
	}
	if calls == nil {
		return nil
	}
	return joinRaw(calls)
}

// parseExchange reads {"human": "…", "assistant": "…"}.
func parseExchange(o object) ([]Message, error) {
	var human, assistant string
	if err := o.decodeAll([]field{{"human", "a string", &human, false}, {"assistant", "a string", &assistant, false}}); err != nil {
		return nil, err
	}
	return []Message{{Role: "user", Content: human}, {Role: "assistant", Content: assistant}}, nil
}
