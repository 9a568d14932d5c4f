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
	Namespace string          `json:"namespace"` // that the tool stands in
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
		t.addCall(item.CallID, inNamespace(item.Namespace, item.Name), item.Arguments)
	case "custom_tool_call":
		if item.Name == "" || item.CallID == "" {
			return refuse(at, "got no name or call_id, want both")
		}
		t.addCall(item.CallID, inNamespace(item.Namespace, item.Name), jsonOf(customInput{item.Input}))
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

	namespace string
}

// inNamespace is the name by which the model calls a tool of a namespace, as Codex has one a server of MCP; "" is none.
func inNamespace(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "__" + name
}

// readTools translates the tools to a chat's, and notes them by their names. Those that run on OpenAI's servers are ignored.
func (r *responseRequest) readTools(ctx context.Context) ([]functionTool, error) {
	r.named = make(map[string]responseTool)
	return r.addTools(ctx, nil, "tools", "", r.Tools)
}

// addTools adds tools, the field "at" of a request, which stand in a namespace or in none.
func (r *responseRequest) addTools(ctx context.Context, tools []functionTool, at, namespace string, more []json.RawMessage) ([]functionTool, error) {
	for i, raw := range more {
		at := fmt.Sprintf("%s[%d]", at, i)
		var head struct {
			Type  string            `json:"type"`
			Name  string            `json:"name"`
			Tools []json.RawMessage `json:"tools"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			return nil, refuse(at, "got %.40s, want a tool", raw)
		}
		var err error
		switch {
		case head.Type == "namespace" && namespace == "" && head.Name != "":
			if tools, err = r.addTools(ctx, tools, at+".tools", head.Name, head.Tools); err != nil {
				return nil, err
			}
			continue
		case head.Type == "namespace":
			return nil, refuse(at, "want a namespace with a name, in no other one")
		case head.Type != "function" && head.Type != "custom":
			if err := ignore(ctx, "tools."+head.Type); err != nil {
				return nil, err
			}
			continue
		}
		t := responseTool{namespace: namespace}
		if err := decodeJSON(ctx, at, raw, &t); err != nil {
			return nil, err
		}
		if t.Name == "" {
			return nil, refuse(at+".name", "is missing")
		}
		name := inNamespace(namespace, t.Name)
		f := functionSpec{name, t.Description, t.Parameters, t.Strict}
		if r.named[name] = t; t.Type == "custom" {
			f.Parameters = customParameters
			var format struct {
				Type       string `json:"type"`
				Syntax     string `json:"syntax"`
				Definition string `json:"definition"`
				Unread     unread `json:",embed"`
			}
			if err := decodeJSON(ctx, at+".format", t.Format, &format); given(t.Format) && err != nil {
				return nil, err
			}
			if format.Definition != "" { // told to the model, not enforced
				f.Description = strings.TrimSpace(f.Description + "\n\nThe input has this grammar (" + format.Syntax + "):\n" + format.Definition)
			}
		}
		tools = append(tools, functionTool{"function", f})
	}
	return tools, nil
}

// readToolChoice translates the choice among tools to that of a chat.
func (r *responseRequest) readToolChoice(ctx context.Context) (json.RawMessage, error) {
	if jsontext.Value(r.ToolChoice).Kind() != '{' {
		return r.ToolChoice, nil
	}
	type choice struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
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
	named := func(c choice) map[string]any {
		return map[string]any{"type": "function", "function": map[string]string{"name": inNamespace(c.Namespace, c.Name)}}
	}
	switch c.Type {
	case "function", "custom":
		return json.RawMessage(jsonOf(named(c.choice))), nil
	case "allowed_tools":
		all := []any{}
		for _, t := range c.Tools {
			all = append(all, named(t))
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
