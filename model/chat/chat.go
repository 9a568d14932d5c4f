package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// Limits of a template.
const (
	maxSource   = 128 << 10 // bytes; the longest in use have about 20 KB
	maxOutput   = 64 << 20  // bytes
	maxVariable = 64 << 20  // bytes of strings in one variable
	maxPasses   = 1 << 18   // of all loops and macros together
	maxDepth    = 64        // macros that call each other; also of nested blocks, brackets and data
	maxRange    = 100_000   // elements of range(), as in Jinja's sandbox
	maxTag      = 8 << 10   // bytes of one {{ }} or {% %}, strings not counted
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // system, user, assistant, tool; what the template knows
	Content string

	// Further keys in order, such as tool_calls or reasoning_content. A key
	// "content" replaces Content, for content that is null or a list of parts.
	Extra Object
}

// Options are what a template sees beside the messages.
type Options struct {
	AddGenerationPrompt bool   // end with the start of an assistant's turn
	BOS, EOS            string // text of the tokens, for bos_token and eos_token

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

func (e *RaisedError) Error() string { return "chat template: " + e.Message }

// Template is a parsed chat template. It is safe for concurrent use.
type Template struct {
	template *exec.Template
}

// Parse reads a template. The error says what gonja does not understand, or which
// limit the source exceeds.
func Parse(source string) (t *Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, fmt.Errorf("chat template: parse: %v", r)
		}
	}()
	source, err = prepare(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: parse: %w", err)
	}
	c := config.New()
	c.KeepTrailingNewline = true // prepare has taken away what is not to be kept
	const name = "/template"
	loader, err := loaders.NewMemoryLoader(map[string]string{name: source})
	if err != nil {
		return nil, fmt.Errorf("chat template: parse: %w", err)
	}
	template, err := exec.NewTemplate(name, c, loader, environment)
	if err != nil {
		// gonja's message starts with the whole source.
		msg := strings.TrimPrefix(err.Error(), fmt.Sprintf("failed to parse template '%s': ", source))
		return nil, fmt.Errorf("chat template: parse: %s", shorten(msg))
	}
	return &Template{template}, nil
}

// Render returns the text of a conversation. A template that refuses the
// conversation gives a *RaisedError.
func (t *Template) Render(messages []Message, o Options) (string, error) {
	list := make([]any, len(messages))
	for i, m := range messages {
		list[i] = m.object()
	}
	variables := map[string]any{
		"messages":              list,
		"add_generation_prompt": o.AddGenerationPrompt,
		"bos_token":             o.BOS,
		"eos_token":             o.EOS,
	}
	if o.Tools != nil {
		variables["tools"] = o.Tools
	}
	for name, v := range o.Extra {
		variables[name] = v
	}
	return t.render(variables, o.Now)
}

// object is the message as templates see it.
func (m *Message) object() Object {
	o := Object{{"role", m.Role}}
	if _, replaced := m.Extra.Get("content"); !replaced {
		o = append(o, Member{"content", m.Content})
	}
	return append(o, m.Extra...)
}

func (t *Template) render(variables map[string]any, now time.Time) (text string, err error) {
	run := &runState{}
	data := map[string]any{runKey: run, "raise_exception": run.raise}
	for name, v := range variables {
		if data[name], err = toTemplate(v, 0); err != nil {
			return "", fmt.Errorf("chat template: variable %s: %w", name, err)
		}
	}
	if !now.IsZero() {
		data["strftime_now"] = func(format string) (string, error) { return strftime(now, format) }
	}
	defer func() {
		if r := recover(); r != nil {
			text, err = "", fmt.Errorf("chat template: %s", shorten(fmt.Sprint(r)))
		}
	}()
	var out limitedBuilder
	err = t.template.Execute(&out, exec.NewContext(data))
	switch {
	case run.raised != nil:
		return "", run.raised
	case run.exceeded != nil:
		return "", fmt.Errorf("chat template: %w", run.exceeded)
	case errors.Is(err, errOutput):
		return "", fmt.Errorf("chat template: %w", errOutput)
	case err != nil:
		return "", fmt.Errorf("chat template: %s", shorten(err.Error()))
	}
	return out.String(), nil
}

// shorten bounds messages that quote the template or the data. The reason is at
// the end, the place at the start.
func shorten(msg string) string {
	const head, tail = 300, 300
	if len(msg) > head+tail {
		msg = strings.ToValidUTF8(msg[:head], "") + " … " + strings.ToValidUTF8(msg[len(msg)-tail:], "")
	}
	return msg
}

var errOutput = fmt.Errorf("the output is longer than %d MB", maxOutput>>20)

// limitedBuilder is a strings.Builder that refuses to grow past maxOutput.
type limitedBuilder struct {
	strings.Builder
}

func (b *limitedBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, errOutput
	}
	return b.Builder.Write(p)
}

// WriteString is what io.WriteString calls.
func (b *limitedBuilder) WriteString(s string) (int, error) {
	if b.Len()+len(s) > maxOutput {
		return 0, errOutput
	}
	return b.Builder.WriteString(s)
}
