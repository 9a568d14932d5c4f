package datasets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// Message is one turn of a chat.
type Message struct {
	Role    string // "user", "assistant", "system", or what the chat template knows
	Content string // may be empty
}

// Prompt is one line of a prompt file. Exactly one of Text, Messages and IDs is
// set, as Form says.
type Prompt struct {
	ID   string // the line's "id", else FILE:LINE
	Form PromptForm

	Text     string
	Messages []Message
	IDs      []int32
	Chosen   string // the answer that the line gives to a FormFewShot
}

// PromptForm is the field of a line that holds its prompt.
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

// PromptReader streams a prompt file: JSONL, where each line has one of
//
//	{"prompt": "…"}
//	{"text": "…"}
//	{"messages": [{"role": "user", "content": "…"}]}
//	{"prompt_ids": [1, 3, 7]}
//	{"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}
//	{"conversation": [{"human": "…", "assistant": "…"}]}
//	{"prompt": "…", "chosen": "…"}
//
// and may have an "id", a string or a whole number. Other fields are passed over,
// because prompt files come from many hands.
type PromptReader struct {
	lines  *lineReader
	read   int
	closer io.Closer // nil if the caller owns the reader
}

// OpenPrompts opens a prompt file. The caller closes it.
func OpenPrompts(path string) (*PromptReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open prompts: %w", err)
	}
	r := NewPromptReader(path, f)
	r.closer = f
	return r, nil
}

// NewPromptReader reads prompts from r; file stands in its errors and in the IDs
// of lines without one.
func NewPromptReader(file string, r io.Reader) *PromptReader {
	return &PromptReader{lines: newLineReader(file, r)}
}

// Next returns the next prompt, or io.EOF after the last; a file without prompts
// is ErrEmpty instead.
func (r *PromptReader) Next() (Prompt, error) {
	o, err := r.lines.next()
	if err == io.EOF && r.read == 0 {
		return Prompt{}, fmt.Errorf("%s: %w", r.lines.file, ErrEmpty)
	}
	if err != nil {
		return Prompt{}, err
	}
	p, err := parsePrompt(o)
	if err != nil {
		return Prompt{}, r.lines.locate(err)
	}
	if p.ID == "" {
		p.ID = fmt.Sprintf("%s:%d", filepath.Base(r.lines.file), r.lines.line)
	}
	r.read++
	return p, nil
}

// Close closes the file that OpenPrompts opened.
func (r *PromptReader) Close() error {
	if r.closer == nil {
		return nil
	}
	return r.closer.Close()
}

// ReadPrompts reads a whole prompt file. OpenPrompts streams it.
func ReadPrompts(path string) ([]Prompt, error) {
	r, err := OpenPrompts(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return collect(r.Next)
}

func parsePrompt(o object) (p Prompt, err error) {
	for _, form := range promptForms {
		if _, ok := o[string(form)]; !ok {
			continue
		}
		if p.Form != "" {
			return Prompt{}, fmt.Errorf("got both %q and %q, want one of the fields %q", p.Form, form, promptForms)
		}
		p.Form = form
	}
	switch p.Form {
	case FormPrompt, FormText:
		p.Text, err = o.text(string(p.Form))
		if _, ok := o["chosen"]; ok && p.Form == FormPrompt && o.decode("chosen", "", &p.Chosen) == nil && p.Chosen != "" {
			p.Form = FormFewShot
		}
	case formConversations, formConversation:
		p.Messages, err = parseConversation(o, p.Form)
		p.Form = FormMessages
	case FormMessages:
		p.Messages, err = parseMessages(o)
	case FormIDs:
		p.IDs, err = o.ids(string(p.Form))
		if err == nil && len(p.IDs) == 0 {
			err = fmt.Errorf("field %q: got no ids, want at least one", p.Form)
		}
	default:
		err = fmt.Errorf("got no prompt, want one of the fields %q", promptForms)
	}
	if err != nil {
		return Prompt{}, err
	}
	if _, ok := o["id"]; ok {
		if p.ID, err = parseID(o); err != nil {
			return Prompt{}, err
		}
	}
	return p, nil
}

func parseMessages(o object) ([]Message, error) {
	var items []json.RawMessage
	if err := o.decode(string(FormMessages), "an array of objects", &items); err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, errors.New(`field "messages": got no messages, want at least one`)
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
			return nil, fmt.Errorf(`field "messages": element %d: %w`, i, err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func parseID(o object) (string, error) {
	var number int64
	if o.decode("id", "", &number) == nil {
		return strconv.FormatInt(number, 10), nil
	}
	id, err := o.text("id")
	if err != nil {
		return "", fmt.Errorf(`%w or a whole number`, err)
	}
	return id, nil
}
