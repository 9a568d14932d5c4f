package chat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"glimpse/model/chat/jinja"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // system, user, assistant, tool; what the template knows
	Content string
	// NoContent: there is no key content, which templates tell from empty text.
	NoContent bool

	// Further keys in order, such as tool_calls or reasoning_content. A key
	// "content" replaces Content, for content that is null or a list of parts.
	Extra Object
}

// WithText is the message with other text as its content; what was content in parts is one part.
func (m Message) WithText(text string) Message {
	m.Content, m.NoContent = text, false
	i := slices.IndexFunc(m.Extra, func(e Member) bool { return e.Key == "content" })
	if i < 0 {
		return m
	}
	m.Extra = slices.Clone(m.Extra)
	if _, parts := m.Extra[i].Value.([]any); parts {
		m.Extra[i].Value = []any{Object{{Key: "type", Value: "text"}, {Key: "text", Value: text}}}
	} else { // null
		m.Extra = slices.Delete(m.Extra, i, i+1)
	}
	return m
}

// Options are what a template sees beside the messages.
type Options struct {
	AddGenerationPrompt bool   // end with the start of an assistant's turn
	BOS, EOS            string // text of the tokens, for bos_token and eos_token; none if empty

	// Tools are the functions the model may call, as JSON schemas; nil for
	// none. Objects keep the order of their keys (see ParseJSON).
	Tools []any

	// Now is what strftime_now tells. Zero leaves the function undefined:
	// templates then fall back to a fixed date, and the same conversation
	// always gives the same text.
	Now time.Time

	// Extra are further variables, such as enable_thinking. They win over the
	// ones above.
	Extra map[string]any
}

// RaisedError is what a template's raise_exception was called with: the template
// does not take the conversation.
type RaisedError struct {
	Message string
}

func (e *RaisedError) Error() string {
	return "chat template: " + (&jinja.RaisedError{Message: e.Message}).Error()
}

// ErrBudget: a rendering takes more work or memory than it is given.
var ErrBudget = jinja.ErrBudget

// Template is a parsed chat template. It is safe for concurrent use.
type Template struct {
	template *jinja.Template

	formOnce sync.Once
	chosen   form
	roles    roles
}

// Parse reads a template. The error says what is wrong with it and where, or which
// limit the source exceeds.
func Parse(source string) (*Template, error) {
	t, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: parse: %w", err)
	}
	return &Template{template: t}, nil
}

// Reads tells whether the template reads a variable of the name, such as
// enable_thinking.
func (t *Template) Reads(name string) bool { return t.template.Reads(name) }

// Unread are the further keys of messages, and "tools" where there are any, that the template does
// not name: its text does not tell of them. Each is there once.
func (t *Template) Unread(messages []Message, tools []any) (keys []string) {
	note := func(key string) {
		if slices.Contains(thoughtKeys, key) && slices.ContainsFunc(thoughtKeys, t.template.Names) {
			return // by another name
		}
		if !t.template.Names(key) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if len(tools) > 0 {
		note("tools")
	}
	for _, m := range messages {
		for _, e := range m.Extra {
			note(e.Key)
		}
	}
	return keys
}

// Render returns the text of a conversation. A template that refuses the
// conversation gives a *RaisedError, one that takes too much ErrBudget.
//
// Calls of tools may have arguments as JSON text, as OpenAI's API has them, or as an object: templates get what they
// tell of. Content that is null is none; thoughts go by the name that the template reads.
func (t *Template) Render(ctx context.Context, messages []Message, o Options) (string, error) {
	f := form{}
	if slices.ContainsFunc(messages, func(m Message) bool { return index(m.Extra, "tool_calls") >= 0 }) {
		f = t.form()
	}
	return t.renderAs(ctx, f, messages, o)
}

func (t *Template) renderAs(ctx context.Context, f form, messages []Message, o Options) (string, error) {
	list := make([]any, len(messages))
	for i, m := range messages {
		m = t.shown(m, f)
		list[i] = m.object()
	}
	variables := map[string]any{
		"messages":              list,
		"add_generation_prompt": o.AddGenerationPrompt,
		"tools":                 nil, // defined, as are the documents
		"documents":             nil,
	}
	for name, token := range map[string]string{"bos_token": o.BOS, "eos_token": o.EOS} {
		if token != "" {
			variables[name] = token
		}
	}
	if o.Tools != nil {
		variables["tools"] = o.Tools
	}
	maps.Copy(variables, o.Extra)
	return t.render(ctx, variables, o.Now)
}

func (t *Template) render(ctx context.Context, variables map[string]any, now time.Time) (string, error) {
	text, err := t.template.Render(ctx, variables, now)
	if raised, ok := errors.AsType[*jinja.RaisedError](err); ok {
		return "", &RaisedError{raised.Message}
	}
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	return text, nil
}

// object is the message as templates see it.
func (m *Message) object() Object {
	o := Object{{Key: "role", Value: m.Role}}
	if _, replaced := m.Extra.Get("content"); !replaced && !m.NoContent {
		o = append(o, Member{Key: "content", Value: m.Content})
	}
	return append(o, m.Extra...)
}
