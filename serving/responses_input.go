package serving

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// inputItem is an item of a conversation in /v1/responses: a message, or thoughts, a call or its result of a turn before.
type inputItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Status    string          `json:"status"`
	Role      string          `json:"role"`
	Phase     json.RawMessage `json:"phase"`
	Content   json.RawMessage `json:"content"`
	Summary   json.RawMessage `json:"summary"`
	Encrypted string          `json:"encrypted_content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"` // of a function
	Input     string          `json:"input"`     // of a custom tool
	Output    json.RawMessage `json:"output"`
	Unread    unread          `json:",embed"`
}

// readInput translates instructions and input to the turns of a chat.
func (r *responseRequest) readInput(ctx context.Context) (*turns, error) {
	t := &turns{}
	if r.Instructions != "" {
		t.say("system", content{text: r.Instructions})
	}
	switch jsontext.Value(r.Input).Kind() {
	case '"':
		var text string
		if err := decodeJSON(ctx, "input", r.Input, &text); err != nil {
			return nil, err
		}
		t.say("user", content{text: text})
		return t, nil
	case '[':
	default:
		return nil, refuse("input", "got %.40s, want a text or a list of items", orNull(r.Input))
	}
	var items []inputItem
	if err := decodeJSON(ctx, "input", r.Input, &items); err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, refuse("input", "got an empty list, want at least one item")
	}
	for i := range items {
		if err := t.addItem(ctx, fmt.Sprintf("input[%d]", i), &items[i]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// addItem adds an item, the field "at" of a request.
func (t *turns) addItem(ctx context.Context, at string, item *inputItem) error {
	switch item.Type {
	case "", "message":
		switch item.Role {
		case "system", "developer", "user", "assistant":
		default:
			return refuse(at+".role", "got %q, want system, developer, user or assistant", item.Role)
		}
		said, err := readContent(ctx, at+".content", item.Content)
		if err != nil {
			return err
		}
		t.say(item.Role, said)
	case "reasoning":
		thought, err := readContent(ctx, at+".content", item.Content)
		if err == nil && thought.text == "" {
			thought.text = opened(item.Encrypted)
		}
		if err == nil && thought.text == "" {
			thought, err = readContent(ctx, at+".summary", item.Summary)
		}
		if err != nil {
			return err
		}
		if thought.text != "" { // of another server's there may be nothing that this one can read
			t.think(thought.text)
		}
	case "function_call":
		if item.Name == "" || item.CallID == "" {
			return refuse(at, "got no name or call_id, want both")
		}
		t.addCall(item.CallID, item.Name, item.Arguments)
	case "custom_tool_call":
		if item.Name == "" || item.CallID == "" {
			return refuse(at, "got no name or call_id, want both")
		}
		t.addCall(item.CallID, item.Name, jsonOf(customInput{item.Input}))
	case "function_call_output", "custom_tool_call_output":
		output, err := readContent(ctx, at+".output", item.Output)
		if err != nil {
			return err
		}
		if !t.result(item.CallID, output.text) {
			return refuse(at+".call_id", "got %q, which no call before it has", item.CallID)
		}
	default:
		return refuse(at+".type", "got %q, want message, reasoning, function_call, function_call_output, custom_tool_call or custom_tool_call_output", item.Type)
	}
	return nil
}

// customInput is the argument of the function that stands for a custom tool, whose input is a text.
type customInput struct {
	Input string `json:"input"`
}

var customParameters = json.RawMessage(`{"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": false}`)

// responseTool is a tool of /v1/responses. Of those that OpenAI's servers run there is none here.
type responseTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
	Format      json.RawMessage `json:"format"` // of a custom tool's input
	Unread      unread          `json:",embed"`
}

// readTools translates the tools to a chat's, and notes which are custom. Those that run on OpenAI's servers are ignored.
func (r *responseRequest) readTools(ctx context.Context) (tools []functionTool, custom map[string]bool, err error) {
	custom = make(map[string]bool)
	for i, raw := range r.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		var head struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			return nil, nil, refuse(at, "got %.40s, want a tool", raw)
		}
		if head.Type != "function" && head.Type != "custom" {
			if err := ignore(ctx, "tools."+head.Type); err != nil {
				return nil, nil, err
			}
			continue
		}
		var t responseTool
		if err := decodeJSON(ctx, at, raw, &t); err != nil {
			return nil, nil, err
		}
		if t.Name == "" {
			return nil, nil, refuse(at+".name", "is missing")
		}
		f := functionSpec{t.Name, t.Description, t.Parameters, t.Strict}
		if t.Type == "custom" {
			custom[t.Name], f.Parameters = true, customParameters
			var format struct {
				Type       string `json:"type"`
				Syntax     string `json:"syntax"`
				Definition string `json:"definition"`
				Unread     unread `json:",embed"`
			}
			if err := decodeJSON(ctx, at+".format", t.Format, &format); given(t.Format) && err != nil {
				return nil, nil, err
			}
			if format.Definition != "" { // told to the model, not enforced
				f.Description = strings.TrimSpace(f.Description + "\n\nThe input has this grammar (" + format.Syntax + "):\n" + format.Definition)
			}
		}
		tools = append(tools, functionTool{"function", f})
	}
	return tools, custom, nil
}

// readToolChoice translates the choice among tools to that of a chat.
func (r *responseRequest) readToolChoice(ctx context.Context) (json.RawMessage, error) {
	if jsontext.Value(r.ToolChoice).Kind() != '{' {
		return r.ToolChoice, nil
	}
	type choice struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	var c struct {
		choice
		Mode   string   `json:"mode"`
		Tools  []choice `json:"tools"`
		Unread unread   `json:",embed"`
	}
	if err := decodeJSON(ctx, "tool_choice", r.ToolChoice, &c); err != nil {
		return nil, err
	}
	named := func(name string) map[string]any {
		return map[string]any{"type": "function", "function": map[string]string{"name": name}}
	}
	switch c.Type {
	case "function", "custom":
		return json.RawMessage(jsonOf(named(c.Name))), nil
	case "allowed_tools":
		all := []any{}
		for _, t := range c.Tools {
			all = append(all, named(t.Name))
		}
		return json.RawMessage(jsonOf(map[string]any{"type": "allowed_tools", "allowed_tools": map[string]any{"mode": c.Mode, "tools": all}})), nil
	}
	return nil, refuse("tool_choice", "got type %q, want function, custom or allowed_tools", c.Type)
}

// sealed are thoughts as a client holds them that wants them opaque, to send them back with the turns that follow: what is not stored
// here must come from there. They are no secret.
func sealed(thoughts string) string {
	return sealPrefix + base64.StdEncoding.EncodeToString([]byte(thoughts))
}

const sealPrefix = "glimpse:"

// opened are the thoughts in a text that sealed has made; "" for anything else.
func opened(text string) string {
	text, ok := strings.CutPrefix(text, sealPrefix)
	raw, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}
