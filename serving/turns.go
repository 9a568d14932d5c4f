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
}

// turns are a conversation as it is told part by part.
type turns struct {
	all   []turn
	names map[string]string // of functions, by the calls' ids
}

// say adds a text. Texts of the system, and of an assistant that had none, are of one message with those just before: many
// templates know no other.
func (t *turns) say(role, text string) {
	if role == "developer" {
		role = "system"
	}
	if last := t.last(role); last != nil && (role == "system" || role == "assistant" && last.Content == nil) {
		if last.Content != nil {
			text = *last.Content + "\n\n" + text
		}
		last.Content = &text
		return
	}
	t.all = append(t.all, turn{Role: role, Content: &text})
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

// contentText is a content, the field "at" of a request: a text, or a list of parts, whose texts are joined.
func contentText(ctx context.Context, at string, raw json.RawMessage) (text string, inParts bool, err error) {
	var parts []struct {
		Type   string `json:"type"`
		Text   string `json:"text"`
		Unread unread `json:",embed"`
		quietPart
	}
	switch jsontext.Value(raw).Kind() {
	case 'n', jsontext.KindInvalid:
		return "", false, nil
	case '"':
		return text, false, decodeJSON(ctx, at, raw, &text)
	case '[':
		if err := decodeJSON(ctx, at, raw, &parts); err != nil {
			return "", true, err
		}
	default:
		return "", false, refuse(at, "got %.40s, want a text or a list of parts", raw)
	}
	for i, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text", "reasoning_text", "summary_text":
			text += p.Text
		default:
			return "", true, refuse(fmt.Sprintf("%s[%d]", at, i), "got a part of type %q, want text", p.Type)
		}
	}
	return text, true, nil
}

// quietPart is what parts have that changes no answer: of an answer that comes back, and what is to be cached, which is found again
// without that.
type quietPart struct {
	Annotations  json.RawMessage `json:"annotations"`
	LogProbs     json.RawMessage `json:"logprobs"`
	Citations    json.RawMessage `json:"citations"`
	CacheControl json.RawMessage `json:"cache_control"`
}
