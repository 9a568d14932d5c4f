package datasets

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Prompt is what a row of a source asks. Exactly one of Text, Messages and IDs is
// set, as Form says.
type Prompt struct {
	ID   string // the row's "id", else its place: FILE:LINE
	Form PromptForm

	Text     string
	Messages []Message
	IDs      []int32
	Chosen   string // the answer that the row gives to a FormPrompt or FormFewShot; "" is none

	Tools   json.RawMessage // of FormMessages: the list of functions that the model may call, nil without one
	Dropped []string        // fields of a chat that the row has and that are not in the prompt
}

// PromptForm is the field of a row that holds its prompt.
type PromptForm string

// The forms of a prompt, which say what is still to be done with it.
const (
	FormPrompt   PromptForm = "prompt"     // text that a user says: goes into the chat template
	FormText     PromptForm = "text"       // running text: goes to the model as it is
	FormMessages PromptForm = "messages"   // a chat, or what a user says beside a system message or tools: goes into the chat template
	FormIDs      PromptForm = "prompt_ids" // token ids: go to the model as they are
	FormFewShot  PromptForm = "few-shot"   // worked examples that a model completes: text, to the model as it is
)

// Other names of FormMessages, as ShareGPT files have them.
const (
	formConversations PromptForm = "conversations"
	formConversation  PromptForm = "conversation"
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
//	{"prompt": "…", "completion": "…"}
//	{"prompt": [{"role": "user", "content": "…"}], "completion": [{"role": "assistant", "content": "…"}]}
//
// unless [Fields] say where the prompt stands, and may have an "id", a string or a whole
// number. "system" or "system_prompt" beside a chat or a text of the user is the first turn, and "tools" the
// functions that the model may call, a list of objects or the JSON text of one. Messages
// come before a prompt beside them. Further fields of a message are kept. Other fields are
// passed over, because prompt files come from many hands; in a chat they are named in Prompt.Dropped.
type PromptReader struct{ mappedRows }

// mappedRows are the rows of a source with what says where their fields stand.
type mappedRows struct {
	rows    *RowReader
	mapping *mapping
}

// openMapped opens a source for what its rows are read as.
func openMapped(what, path, format string, fields Fields) (m mappedRows, err error) {
	if m.mapping, err = fields.compileMapping(); err != nil {
		return m, fmt.Errorf("open %s %s: %w", what, path, err)
	}
	m.rows, err = OpenRows(path, format)
	return m, err
}

// Close closes the files.
func (m mappedRows) Close() error { return m.rows.Close() }

// OpenSource opens a file, or all files of a folder in the order of their paths, in
// any format. Hidden files are passed over. The caller closes it.
//
// An answer that fields name becomes the assistant's turn after the prompt, and of
// running text what is chosen to follow it.
func OpenSource(path, format string, fields Fields) (*PromptReader, error) {
	m, err := openMapped("source", path, format, fields)
	if err != nil {
		return nil, err
	}
	return &PromptReader{m}, nil
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

// readPrompt reads the prompt of a row and its ID.
func (m *mapping) readPrompt(row Row) (p Prompt, err error) {
	switch {
	case m.prompt != nil:
		p.Form = FormPrompt
		p.Text, err = m.prompt.renderText(row)
	case m.text != nil:
		p.Form = FormText
		p.Text, err = m.text.renderText(row)
	case m.messages != nil:
		p.Form = FormMessages
		var o object
		if o, err = m.messages.field(row); err == nil {
			p.Messages, err = parseMessages(o, m.messages.path)
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
	if err == nil {
		err = p.readBeside(row.object)
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
		return p.Messages[i].prependText(context)
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
		p.Form, p.Messages, p.Text = FormMessages, []Message{{Role: "user", Content: p.Text}, {Role: "assistant", Content: answers[0]}}, ""
		p.Chosen = ""
	case FormText:
		p.Form, p.Chosen = FormFewShot, answers[0]
	case FormMessages:
		if n := len(p.Messages); p.Messages[n-1].Role != "assistant" {
			p.Messages = append(p.Messages, Message{Role: "assistant", Content: answers[0]})
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
		case p.Form == FormPrompt && isChat(form): // which has the prompt in it
		case p.Form != "":
			return Prompt{}, fmt.Errorf("got both %q and %q, want one of the fields %q", p.Form, form, promptForms)
		}
		p.Form = form
	}
	if p.Form == "" {
		p.Form = null
	}
	name := string(p.Form)
	switch {
	case isChat(p.Form):
		p.Form = FormMessages
		p.Messages, err = parseMessages(o, name)
		if prompt, ok := scalarText(o[string(FormPrompt)]); ok && err == nil && !p.asks(prompt) {
			p.Dropped = append(p.Dropped, string(FormPrompt))
		}
	case p.Form == FormPrompt && isList(o[name]):
		p.Form = FormMessages
		if p.Messages, err = parseMessages(o, name); err == nil {
			err = p.addCompletion(o)
		}
	case p.Form == FormPrompt || p.Form == FormText:
		if p.Text, err = o.requiredText(name); err == nil && p.Form == FormPrompt {
			err = p.readAnswer(o)
		}
	case p.Form == FormIDs:
		p.IDs, err = parseIDs(o, name)
	default:
		err = fmt.Errorf("got no prompt, want one of the fields %q", promptForms)
	}
	if err != nil {
		return Prompt{}, err
	}
	return p, nil
}

// asks tells that the text is the first turn of the user.
func (p *Prompt) asks(text string) bool {
	i := slices.IndexFunc(p.Messages, func(x Message) bool { return x.Role == "user" })
	return i >= 0 && p.Messages[i].Content == text
}

func isChat(form PromptForm) bool {
	return form == FormMessages || form == formConversations || form == formConversation
}

func isList(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '[' }

// readAnswer reads what a row gives beside a prompt of text. Preference data has other lists and
// numbers as "chosen".
func (p *Prompt) readAnswer(o object) error {
	if o.hasField("chosen") && o.decode("chosen", "", &p.Chosen) == nil && p.Chosen != "" {
		p.Form = FormFewShot
		return nil
	}
	if !o.hasField("completion") {
		return nil
	}
	if !isList(o["completion"]) {
		return o.decode("completion", "a string or a list of messages", &p.Chosen)
	}
	p.Form, p.Messages, p.Text = FormMessages, []Message{{Role: "user", Content: p.Text}}, ""
	return p.addCompletion(o)
}

// addCompletion puts the completion after the messages of a prompt: the assistant's turn, or a list
// that ends with it.
func (p *Prompt) addCompletion(o object) error {
	switch {
	case !o.hasField("completion"):
		return nil
	case isList(o["completion"]):
		messages, err := parseMessages(o, "completion")
		p.Messages = append(p.Messages, messages...)
		return err
	}
	var answer string
	if err := o.decode("completion", "a string or a list of messages", &answer); err != nil {
		return err
	}
	if answer != "" {
		p.Messages = append(p.Messages, Message{Role: "assistant", Content: answer})
	}
	return nil
}

// readBeside reads what stands beside the messages or the prompt of a chat: the system message and
// the tools. What a user says becomes a chat by them.
func (p *Prompt) readBeside(o object) error {
	if p.Form != FormMessages && p.Form != FormPrompt {
		return nil
	}
	system := p.readSystem(o)
	if err := p.readTools(o); err != nil {
		return err
	}
	for _, name := range []string{"functions", "documents", "chat_template_kwargs"} {
		if raw := o[name]; o.hasField(name) && string(raw) != "[]" && string(raw) != "{}" && string(raw) != `""` {
			p.Dropped = append(p.Dropped, name)
		}
	}
	for _, name := range []string{"images", "audios", "videos"} {
		if raw := o[name]; o.hasField(name) && string(raw) != "[]" && p.Form == FormMessages {
			return fmt.Errorf("field %q: got %s, want none: models read text alone here", name, excerpt(raw))
		}
	}
	if p.Form == FormPrompt && (system != "" || p.Tools != nil) {
		p.Form, p.Messages = FormMessages, []Message{{Role: "user", Content: p.Text}}
		if p.Chosen != "" {
			p.Messages = append(p.Messages, Message{Role: "assistant", Content: p.Chosen})
		}
		p.Text, p.Chosen = "", ""
	}
	if system != "" {
		p.Messages = slices.Insert(p.Messages, 0, Message{Role: "system", Content: system})
	}
	return nil
}

// readSystem is the system message beside a prompt that has none. Columns of its names that say something else are dropped.
func (p *Prompt) readSystem(o object) (system string) {
	var first Message
	if len(p.Messages) > 0 {
		first = p.Messages[0]
	}
	for _, name := range []string{"system", "system_prompt"} {
		var text string
		switch {
		case !o.hasField(name) || o.decode(name, "a string", &text) == nil && text == "":
		case text != "" && system == "" && first.Role != "system":
			system = text
		case text == "" || text != system && text != first.Content: // no text is another column of that name
			p.Dropped = append(p.Dropped, name)
		}
	}
	return system
}

func (p *Prompt) readTools(o object) error {
	raw := unquoted(o["tools"])
	if !o.hasField("tools") || string(raw) == `""` {
		return nil
	}
	var tools []json.RawMessage
	if err := (object{"tools": raw}).decode("tools", "a list of functions, or the JSON text of one", &tools); err != nil {
		return err
	}
	for i, tool := range tools {
		if _, err := parseObject(tool); err != nil {
			return fmt.Errorf(`field "tools": element %d: %w`, i, err)
		}
	}
	if len(tools) > 0 || p.Form == FormMessages {
		p.Tools = raw
	}
	return nil
}

func parseIDs(o object, name string) ([]int32, error) {
	ids, err := o.ids(name)
	if err == nil && len(ids) == 0 {
		err = fmt.Errorf("field %q: got no ids, want at least one", name)
	}
	return ids, err
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
	id, err := o.requiredText("id")
	if err != nil {
		return "", fmt.Errorf(`%w or a whole number`, err)
	}
	return id, nil
}
