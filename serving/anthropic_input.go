package serving

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// conversationBlocks are the fields of /v1/messages that a prompt is rendered of.
type conversationBlocks struct {
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Unread  unread          `json:",embed"`
	} `json:"messages"`
	System       json.RawMessage   `json:"system"`
	Tools        []json.RawMessage `json:"tools"`
	CacheControl json.RawMessage   `json:"cache_control"`
	ToolChoice   *struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Parallel *bool  `json:"disable_parallel_tool_use"`
		Unread   unread `json:",embed"`
	} `json:"tool_choice"`
	Thinking *struct {
		Type   string `json:"type"`
		Unread unread `json:",embed"`
	} `json:"thinking"`
	Template map[string]json.RawMessage `json:"chat_template_kwargs"`
}

// messageBlock is a block of a message's content.
type messageBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature json.RawMessage `json:"signature"`
	Data      json.RawMessage `json:"data"` // of redacted thoughts
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Caller    json.RawMessage `json:"caller"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Keep      bool            `json:"keep"`
	Unread    unread          `json:",embed"`
	quietPart
}

// readConversation translates the fields to a chat's and its turns.
func (b *conversationBlocks) readConversation(ctx context.Context) (*conversation, *turns, error) {
	c, t := &conversation{Template: b.Template}, &turns{}
	system, err := readContent(ctx, "system", b.System)
	if err != nil {
		return nil, nil, err
	}
	if system.text != "" {
		t.say("system", system)
	}
	if len(b.Messages) == 0 {
		return nil, nil, refuse("messages", "got none, want at least one")
	}
	for i, m := range b.Messages {
		at := fmt.Sprintf("messages[%d]", i)
		if m.Role != "user" && m.Role != "assistant" && m.Role != "system" {
			return nil, nil, refuse(at+".role", "got %q, want user or assistant", m.Role)
		}
		if err := t.addBlocks(ctx, at+".content", m.Role, m.Content); err != nil {
			return nil, nil, err
		}
	}
	if err := b.readTools(ctx, c); err != nil {
		return nil, nil, err
	}
	if b.Thinking != nil {
		thinks := b.Thinking.Type != "disabled"
		if c.thinks = &thinks; thinks && b.Thinking.Type != "enabled" && b.Thinking.Type != "adaptive" {
			return nil, nil, refuse("thinking.type", "got %q, want enabled, adaptive or disabled", b.Thinking.Type)
		}
	}
	return c, t, nil
}

// addBlocks adds a message's content, the field "at" of a request.
func (t *turns) addBlocks(ctx context.Context, at, role string, raw json.RawMessage) error {
	switch jsontext.Value(raw).Kind() {
	case '"':
		var text string
		if err := decodeJSON(ctx, at, raw, &text); err != nil {
			return err
		}
		t.say(role, content{text: text})
		return nil
	case '[':
	default:
		return refuse(at, "got %.40s, want a text or a list of blocks", orNull(raw))
	}
	var all []messageBlock
	if err := decodeJSON(ctx, at, raw, &all); err != nil {
		return err
	}
	said, any := content{}, false
	say := func() {
		if any {
			t.say(role, said)
		}
		said, any = content{}, false
	}
	for i, b := range all {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case b.Type == "text":
			said.add(b.Text, b.Keep, b.CacheControl)
			any = true
		case b.Type == "thinking" && role == "assistant":
			say()
			t.think(b.Thinking)
		case b.Type == "redacted_thinking" && role == "assistant": // of another server, which nobody else can read
		case b.Type == "tool_use" && role == "assistant":
			say()
			if b.ID == "" || b.Name == "" {
				return refuse(at, "got no id or name, want both")
			}
			input := b.Input
			if !given(input) {
				input = json.RawMessage("{}")
			}
			t.addCall(b.ID, b.Name, string(input))
		case b.Type == "tool_result" && role == "user":
			say()
			result, err := readContent(ctx, at+".content", b.Content)
			if err != nil {
				return err
			}
			if b.IsError {
				result.text = "Error: " + result.text
			}
			if !t.result(b.ToolUseID, result.text) {
				return refuse(at+".tool_use_id", "got %q, which no call before it has", b.ToolUseID)
			}
		default:
			return refuse(at+".type", "got %q of %s, want text, tool_use of assistant or tool_result of user", b.Type, role)
		}
	}
	say()
	return nil
}

// readTools translates the tools and the choice among them to a chat's. Tools without a schema are ones that models of
// Anthropic know, or its servers run, and are ignored.
func (b *conversationBlocks) readTools(ctx context.Context, c *conversation) error {
	var tools []functionTool
	for i, raw := range b.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		var tool struct {
			Type         string          `json:"type"`
			Name         string          `json:"name"`
			Description  string          `json:"description"`
			Schema       json.RawMessage `json:"input_schema"`
			Strict       bool            `json:"strict"`
			CacheControl json.RawMessage `json:"cache_control"`
			Unread       unread          `json:",embed"`
		}
		if err := json.Unmarshal(raw, &tool); err == nil && tool.Type != "" && tool.Type != "custom" {
			if err := ignore(ctx, "tools."+tool.Type); err != nil {
				return err
			}
			continue
		}
		if err := decodeJSON(ctx, at, raw, &tool); err != nil {
			return err
		}
		if tool.Name == "" || !given(tool.Schema) {
			return refuse(at, "got no name or input_schema, want both")
		}
		tools = append(tools, functionTool{"function", functionSpec{tool.Name, tool.Description, tool.Schema, tool.Strict}})
	}
	if len(tools) > 0 {
		c.Tools = json.RawMessage(jsonOf(tools))
	}
	choice := b.ToolChoice
	if choice == nil {
		return nil
	}
	if choice.Parallel != nil {
		parallel := !*choice.Parallel
		c.Parallel = &parallel
	}
	switch choice.Type {
	case "auto", "none":
		c.ToolChoice = json.RawMessage(jsonOf(choice.Type))
	case "any":
		c.ToolChoice = json.RawMessage(`"required"`)
	case "tool":
		c.ToolChoice = json.RawMessage(jsonOf(fields{"type": "function", "function": fields{"name": choice.Name}}))
	default:
		return refuse("tool_choice.type", "got %q, want auto, any, tool or none", choice.Type)
	}
	return nil
}
