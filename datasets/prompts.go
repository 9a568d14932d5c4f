package datasets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Message is one turn of a chat.
type Message struct {
	Role    string // "user", "assistant", "system", or what the chat template knows
	Content string // may be empty
}

// Prompt is what a row of a source asks. Exactly one of Text, Messages and IDs is
// set, as Form says.
type Prompt struct {
	ID   string // the row's "id", else its place: FILE:LINE
	Form PromptForm

	Text     string
	Messages []Message
	IDs      []int32
	Chosen   string // the answer that the row gives to a FormFewShot
}

// PromptForm is the field of a row that holds its prompt.
type PromptForm string

// The forms of a prompt, which say what is still to be done with it.
const (
	FormPrompt   PromptForm = "prompt"     // text that a user says: goes into the chat template
	FormText     PromptForm = "text"       // running text: goes to the model as it is
	FormMessages PromptForm = "messages"   // a chat: goes into the chat template
	FormIDs      PromptForm = "prompt_ids" // token ids: go to the model as they are
	FormFewShot  PromptForm = "few-shot"   // worked examples that a model completes: text, to the model as it is
)

// The ShareGPT variants, which are read as FormMessages.
const (
	formConversations PromptForm = "conversations" // [{"from", "value"}]
	formConversation  PromptForm = "conversation"  // [{"human", "assistant"}]
)

var promptForms = []PromptForm{FormPrompt, FormText, FormMessages, FormIDs, formConversations, formConversation}

// CheckIDs returns an error that names the first id outside 0 … vocab-1. Text
// and messages have no ids yet and always pass.
func (p Prompt) CheckIDs(vocab int) error {
	if err := checkIDs(string(FormIDs), p.IDs, vocab); err != nil {
		return fmt.Errorf("prompt %s: %w", p.ID, err)
	}
	return nil
}

// PromptReader streams the prompts of a source, whose rows have one of
//
//	{"prompt": "…"}
//	{"text": "…"}
//	{"messages": [{"role": "user", "content": "…"}]}
//	{"prompt_ids": [1, 3, 7]}
//	{"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}
//	{"conversation": [{"human": "…", "assistant": "…"}]}
//	{"prompt": "…", "chosen": "…"}
//
// unless [Fields] say where the prompt stands, and may have an "id", a string or a whole
// number. Other fields are passed over, because prompt files come from many hands.
type PromptReader struct {
	rows    *RowReader
	mapping *mapping
}

// OpenSource opens a file, or all files of a folder in the order of their paths, in
// any format. Hidden files are passed over. The caller closes it.
//
// An answer that fields name becomes the assistant's turn after the prompt, and of
// running text what is chosen to follow it.
func OpenSource(path, format string, fields Fields) (*PromptReader, error) {
	m, err := fields.compile()
	if err != nil {
		return nil, fmt.Errorf("open source %s: %w", path, err)
	}
	rows, err := OpenRows(path, format)
	if err != nil {
		return nil, err
	}
	return &PromptReader{rows: rows, mapping: m}, nil
}

// NewPromptReader reads JSONL from r; file stands in its errors and in the IDs of lines
// without one.
func NewPromptReader(file string, r io.Reader) *PromptReader {
	lines := &lineRows{lines: newLineReader(file, r), name: filepath.Base(file)}
	return &PromptReader{rows: &RowReader{open: lines}, mapping: new(mapping)}
}

// Next returns the next prompt, or io.EOF after the last; a file without prompts
// is ErrEmpty instead.
func (r *PromptReader) Next() (Prompt, error) {
	row, err := r.rows.Next()
	if err != nil {
		return Prompt{}, err
	}
	p, err := r.mapping.readPrompt(row)
	if err == nil && r.mapping.answer != nil {
		p, err = r.mapping.answered(row, p)
	}
	if err != nil {
		return Prompt{}, row.Fail(err)
	}
	return p, nil
}

// Close closes the files.
func (r *PromptReader) Close() error { return r.rows.Close() }

// ReadPrompts reads all prompts of a source. OpenSource streams them.
func ReadPrompts(path string) ([]Prompt, error) {
	r, err := OpenSource(path, FormatAuto, Fields{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return collect(r.Next)
}

// readPrompt reads the prompt of a row and its ID.
func (m *mapping) readPrompt(row Row) (p Prompt, err error) {
	switch {
	case m.prompt != nil:
		p.Form = FormPrompt
		p.Text, err = m.prompt.text(row)
	case m.text != nil:
		p.Form = FormText
		p.Text, err = m.text.text(row)
	case m.messages != nil:
		p.Form = FormMessages
		var o object
		if o, err = m.messages.field(row); err == nil {
			p.Messages, err = parseTurns(o, m.messages.path)
		}
	case m.promptIDs != nil:
		p.Form = FormIDs
		var o object
		if o, err = m.promptIDs.field(row); err == nil {
			p.IDs, err = parseIDs(o, m.promptIDs.path)
		}
	default:
		p, err = parsePrompt(row.object)
	}
	if err == nil && m.context != nil {
		err = m.addContext(row, &p)
	}
	if err != nil {
		return Prompt{}, err
	}
	switch {
	case m.id != nil:
		if p.ID, err = m.id.render(row); err == nil && p.ID == "" {
			err = fmt.Errorf("field %q: got nothing, want an id", m.id.path)
		}
	case row.Has("id"):
		p.ID, err = parseID(row.object)
	default:
		p.ID = row.ID()
	}
	if err != nil {
		return Prompt{}, err
	}
	return p, nil
}

// addContext puts what the question is about before it.
func (m *mapping) addContext(row Row, p *Prompt) error {
	context, err := m.context.render(row)
	if err != nil || context == "" {
		return err
	}
	context += "\n\n"
	switch p.Form {
	case FormIDs:
		return errors.New("got token ids, want text where there is a context")
	case FormMessages:
		i := slices.IndexFunc(p.Messages, func(x Message) bool { return x.Role == "user" })
		if i < 0 {
			return errors.New("got no user's turn, want one that the context stands before")
		}
		p.Messages[i].Content = context + p.Messages[i].Content
	default:
		p.Text = context + p.Text
	}
	return nil
}

// answered is the prompt with the first answer of the row after it.
func (m *mapping) answered(row Row, p Prompt) (Prompt, error) {
	answers, err := m.answer.texts(row)
	if err != nil || len(answers) == 0 || answers[0] == "" {
		return p, err
	}
	switch p.Form {
	case FormPrompt:
		p.Form, p.Messages, p.Text = FormMessages, []Message{{"user", p.Text}, {"assistant", answers[0]}}, ""
	case FormText:
		p.Form, p.Chosen = FormFewShot, answers[0]
	case FormMessages:
		if n := len(p.Messages); p.Messages[n-1].Role != "assistant" {
			p.Messages = append(p.Messages, Message{"assistant", answers[0]})
		}
	case FormIDs:
		return p, errors.New("got token ids, want text where there is an answer")
	}
	return p, nil
}

// parsePrompt reads the prompt of a row that has it in one of the usual fields. Null is as
// good as nothing beside another.
func parsePrompt(o object) (p Prompt, err error) {
	null := PromptForm("")
	for _, form := range promptForms {
		raw, ok := o[string(form)]
		switch {
		case !ok:
			continue
		case string(raw) == "null":
			null = form
			continue
		case p.Form != "":
			return Prompt{}, fmt.Errorf("got both %q and %q, want one of the fields %q", p.Form, form, promptForms)
		}
		p.Form = form
	}
	if p.Form == "" {
		p.Form = null
	}
	switch name := string(p.Form); p.Form {
	case FormPrompt, FormText:
		p.Text, err = o.text(name)
		if _, ok := o["chosen"]; ok && p.Form == FormPrompt && o.decode("chosen", "", &p.Chosen) == nil && p.Chosen != "" {
			p.Form = FormFewShot
		}
	case formConversations, formConversation:
		p.Messages, err = parseConversation(o, name, p.Form)
		p.Form = FormMessages
	case FormMessages:
		p.Messages, err = parseMessages(o, name)
	case FormIDs:
		p.IDs, err = parseIDs(o, name)
	default:
		err = fmt.Errorf("got no prompt, want one of the fields %q", promptForms)
	}
	if err != nil {
		return Prompt{}, err
	}
	return p, nil
}

func parseIDs(o object, name string) ([]int32, error) {
	ids, err := o.ids(name)
	if err == nil && len(ids) == 0 {
		err = fmt.Errorf("field %q: got no ids, want at least one", name)
	}
	return ids, err
}

// parseTurns reads messages in any of the forms.
func parseTurns(o object, name string) ([]Message, error) {
	var items []json.RawMessage
	if err := o.decode(name, "a list of turns", &items); err != nil {
		return nil, err
	}
	if len(items) > 0 {
		if first, err := parseObject(items[0]); err == nil {
			for _, form := range []struct {
				key  string
				form PromptForm
			}{{"from", formConversations}, {"human", formConversation}} {
				if _, ok := first[form.key]; ok {
					return parseConversation(o, name, form.form)
				}
			}
		}
	}
	return parseMessages(o, name)
}

func parseMessages(o object, name string) ([]Message, error) {
	var items []json.RawMessage
	if err := o.decode(name, "an array of objects", &items); err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("field %q: got no messages, want at least one", name)
	}
	messages := make([]Message, 0, len(items))
	for i, item := range items {
		fields, err := parseObject(item)
		var m Message
		if err == nil {
			m.Role, err = fields.text("role")
		}
		if err == nil {
			err = fields.decode("content", "a string", &m.Content)
		}
		if err != nil {
			return nil, fmt.Errorf("field %q: element %d: %w", name, i, err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func parseID(o object) (string, error) {
	var number json.Number
	if raw := o["id"]; len(raw) > 0 && raw[0] != '"' && o.decode("id", "", &number) == nil {
		if !strings.ContainsAny(number.String(), ".eE") {
			return number.String(), nil
		}
		// A column of numbers with a gap is one of floats for pandas: 1.0.
		if f, err := number.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return strconv.FormatInt(int64(f), 10), nil
		}
	}
	id, err := o.text("id")
	if err != nil {
		return "", fmt.Errorf(`%w or a whole number`, err)
	}
	return id, nil
}
