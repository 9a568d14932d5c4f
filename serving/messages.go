package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"glimpse/engine"
	"glimpse/model"
	"glimpse/model/chat"
)

// conversation is the fields of a request that a prompt is rendered of.
type conversation struct {
	Messages   json.RawMessage            `json:"messages"`
	Tools      json.RawMessage            `json:"tools"`
	Template   map[string]json.RawMessage `json:"chat_template_kwargs"`
	Effort     *string                    `json:"reasoning_effort"`
	AddPrompt  *bool                      `json:"add_generation_prompt"`
	Continue   *bool                      `json:"continue_final_message"`
	ToolChoice json.RawMessage            `json:"tool_choice"`
	Parallel   *bool                      `json:"parallel_tool_calls"`

	// ReasoningFormat says where thoughts are told, as llama.cpp's field does; nil: as the server has it.
	ReasoningFormat *string `json:"reasoning_format"`

	// translated: it is another API's. What the template does not read of its messages, no client has sent.
	translated bool
	thinks     *bool  // of another API: whether the answer is to have thoughts; nil: as the template has it
	prompt     string // as it was rendered
	begun      string // its end: the beginning of the answer, which the client gave

	// compresses: what comes before a mark is a context.
	compresses bool
	named      *namedContext // that comes before the messages; nil: none
	marks      []mark
	cut        int // the first bytes of prompt that are a context; 0: there is none

	parts    []engine.KeptPart   // of contents that stay, as the messages say
	rendered engine.Conversation // without the tokens
}

// mark is a place in a conversation where a context ends: after the first bytes of what a message says.
type mark struct{ message, bytes int }

// readMessage reads one of a request, the field "at" of it. Content in parts is the text of all of them.
// parts are those of it that are marked.
func readMessage(ctx context.Context, at string, raw json.RawMessage) (m chat.Message, parts []markedPart, err error) {
	var head struct { // the template says which other members there are
		Role         string            `json:"role"`
		Content      json.RawMessage   `json:"content"`
		Calls        []json.RawMessage `json:"tool_calls"`
		CacheControl json.RawMessage   `json:"cache_control"`
	}
	if err := decodeJSON(ctx, at, raw, &head); err != nil {
		return m, nil, err
	}
	if head.Role == "" {
		return m, nil, errors.New("got no role, want system, user, assistant or tool")
	}
	if len(head.Content) == 0 && (head.Role != "assistant" || len(head.Calls) == 0) {
		return m, nil, errors.New("content: got nothing, want a text or a list of parts")
	}
	said, err := readContent(ctx, at+".content", head.Content)
	if err != nil {
		return m, nil, err
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, nil, err
	}
	if m.Role == "developer" {
		m.Role = "system"
	}
	m.Extra = slices.DeleteFunc(m.Extra, func(e chat.Member) bool { return e.Key == "cache_control" || said.inParts && e.Key == "content" })
	if said.inParts {
		m.Content, m.NoContent = said.text, false
	}
	if given(head.CacheControl) {
		said.parts = append(said.parts, markedPart{to: len(m.Content), cached: true})
	}
	return m, said.parts, nil
}

// render is the text of the conversation as the model's template writes it, up to where the answer begins.
func (c *conversation) render(ctx context.Context, m *model.Model) (string, error) {
	messages, err := c.readMessages(ctx)
	if err != nil {
		return "", err
	}
	template, _, err := m.ChatTemplate(chat.Options{})
	if err != nil {
		return "", refuse("messages", "%v", err)
	}
	own := chat.Options{}
	if own.Extra, err = c.variables(ctx, template); err != nil {
		return "", err
	}
	if own.Tools, err = c.readTools(ctx); err != nil {
		return "", err
	}
	_, o, err := m.ChatTemplate(own)
	if err != nil {
		return "", refuse("messages", "%v", err)
	}
	if unread := template.Unread(messages, own.Tools); len(own.Tools) > 0 && slices.Contains(unread, "tools") {
		return "", refuse("tools", "the chat template of model %s tells the model of no tools", m.Name)
	}
	if !c.translated {
		if err := ignoreUnread(ctx, template, messages); err != nil {
			return "", err
		}
	}
	begun, messages, err := c.cutBegun(messages)
	if err != nil {
		return "", err
	}
	if role, ok := template.Dropped(ctx, messages, o); ok {
		i := slices.IndexFunc(messages, func(m chat.Message) bool { return m.Role == role })
		return "", refuse(fmt.Sprintf("messages[%d]", i), "the chat template of model %s does not tell the model what the role %.40q says", m.Name, role)
	}
	o.AddGenerationPrompt = or(c.AddPrompt, true)
	text, err := template.Render(ctx, messages, o)
	var raised *chat.RaisedError
	switch {
	case errors.As(err, &raised), errors.Is(err, chat.ErrBudget):
		return "", refuse("messages", "%v", err)
	case err != nil:
		return "", refuse("messages", "the chat template cannot render them: %v", err)
	}
	c.prompt, c.begun = text+begun, begun
	c.rendered = engine.Conversation{Template: template, Messages: messages, Options: o, Text: text, More: begun, Parts: c.parts}
	c.cut = c.contextOf(ctx, template, messages, o, text)
	return c.prompt, nil
}

// contextOf is how many of the first bytes of a rendered conversation are a context: those up to its last mark that something follows.
func (c *conversation) contextOf(ctx context.Context, template *chat.Template, messages []chat.Message, o chat.Options, text string) int {
	if !c.compresses {
		return 0
	}
	for _, at := range slices.Backward(c.marks) {
		last := len(messages) - 1
		if at.message > last || at.message == last && at.bytes == len(messages[last].Content) {
			continue
		}
		if before, _, err := template.Around(ctx, messages, o, at.message, at.bytes); err == nil {
			return chat.CommonPrefix(before, text)
		}
	}
	return 0
}

// readMessages reads all messages, at least one.
func (c *conversation) readMessages(ctx context.Context) ([]chat.Message, error) {
	var raws []json.RawMessage
	if err := json.Unmarshal(c.Messages, &raws); err != nil || len(raws) == 0 {
		return nil, refuse("messages", "got %.40s, want a list of at least one message", orNull(c.Messages))
	}
	c.marks, c.parts = nil, nil
	messages := make([]chat.Message, len(raws))
	for i, raw := range raws {
		var err error
		var said content
		at := fmt.Sprintf("messages[%d]", i)
		var own *apiError
		switch messages[i], said.parts, err = readMessage(ctx, at, raw); {
		case errors.As(err, &own):
			return nil, own
		case err != nil:
			return nil, refuse(at, "%v", err)
		}
		if end := said.marked(); end > 0 {
			c.marks = append(c.marks, mark{i, end})
		}
		for _, p := range said.parts {
			c.parts = append(c.parts, engine.KeptPart{Message: i, From: p.from, To: p.to, Cached: !p.stay})
		}
	}
	return c.behind(messages)
}

// readTools is the tools that the model is told of.
func (c *conversation) readTools(ctx context.Context) ([]any, error) {
	choice, err := readToolChoice(ctx, c.ToolChoice)
	if err != nil || !given(c.Tools) {
		return nil, err
	}
	v, err := chat.ParseJSON(c.Tools)
	tools, ok := v.([]any)
	if err != nil || !ok {
		return nil, refuse("tools", "want a list of tools")
	}
	if tools = choice.told(tools); len(tools) == 0 {
		return nil, nil
	}
	return tools, nil
}

// cutBegun takes an answer that has begun, which goes on, from the end of the messages.
func (c *conversation) cutBegun(messages []chat.Message) (begun string, rest []chat.Message, err error) {
	n := len(messages) - 1
	last := &messages[n]
	goesOn := last.Role == "assistant" && !last.NoContent
	switch {
	case or(c.Continue, false) && !goesOn:
		return "", nil, refuse("continue_final_message", "the last message is of role %s, want assistant", last.Role)
	case goesOn && or(c.Continue, true) && !slices.ContainsFunc(last.Extra, func(e chat.Member) bool { return e.Value != nil }):
		return last.Content, messages[:n], nil
	}
	return "", messages, nil
}

// variables are those that the template is rendered with. What it does not read is ignored.
func (c *conversation) variables(ctx context.Context, template *chat.Template) (map[string]any, error) {
	all := make(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(c.Template)) {
		if slices.Contains(chat.Reserved, name) {
			return nil, refuse("chat_template_kwargs", "%s: may not be set by it", name)
		}
		v, err := chat.ParseJSON(c.Template[name])
		if err != nil {
			return nil, refuse("chat_template_kwargs", "%s: %v", name, err)
		}
		if all[name] = v; !template.Reads(name) {
			delete(all, name)
			if err := ignore(ctx, "chat_template_kwargs."+name); err != nil {
				return nil, err
			}
		}
	}
	if _, own := all["enable_thinking"]; c.thinks != nil && !own && template.Reads("enable_thinking") {
		all["enable_thinking"] = *c.thinks
	}
	switch {
	case c.Effort == nil:
	case template.Reads("reasoning_effort"):
		all["reasoning_effort"] = *c.Effort
	default:
		return all, ignore(ctx, "reasoning_effort")
	}
	return all, nil
}

// ignoreUnread names the fields of messages that the template does not read.
func ignoreUnread(ctx context.Context, template *chat.Template, messages []chat.Message) error {
	keys := template.Unread(messages, nil)
	for _, m := range messages {
		for _, e := range m.Extra {
			list, isList := e.Value.([]any)
			if e.Value == nil || isList && len(list) == 0 || !slices.Contains(keys, e.Key) {
				continue
			}
			if err := ignore(ctx, "messages[]."+e.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// encode is the tokens of the conversation, whose text has its special tokens. The first ones are a context: they do not depend on
// what follows.
func (c *conversation) encode(ctx context.Context, m *model.Model) (ids []int32, context int, err error) {
	text, err := c.render(ctx, m)
	if err != nil {
		return nil, 0, err
	}
	if c.cut > 0 {
		if ids, err = encode(m, text[:c.cut], false); err != nil {
			return nil, 0, err
		}
	}
	rest, err := encode(m, text[c.cut:], false)
	return slices.Concat(ids, rest), len(ids), err
}

func encode(m *model.Model, text string, special bool) ([]int32, error) {
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	ids, err := t.Encode(text, special)
	if err != nil {
		return nil, refuse("", "tokenize: %v", err)
	}
	return ids, nil
}

func orNull(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "nothing"
	}
	return strings.TrimSpace(string(raw))
}
