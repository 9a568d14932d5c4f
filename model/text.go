package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"glimpse/model/chat"
)

// CheckPrompt refuses the empty string for a prompt, or for the last message of a user. White
// space is text: the model makes of it what it can.
func CheckPrompt(text string) error {
	if text == "" {
		return errors.New("prompt: got an empty string, want text")
	}
	return nil
}

// Encode tokenizes text as it is, with the special tokens that the tokenizer
// puts around every text.
func (m *Model) Encode(text string) ([]int32, error) {
	if err := CheckPrompt(text); err != nil {
		return nil, err
	}
	return m.tokenize(text, true)
}

func (m *Model) tokenize(text string, addSpecial bool) ([]int32, error) {
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	ids, err := t.Encode(text, addSpecial)
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	return ids, nil
}

// EncodeChat renders messages with the model's chat template, up to and including
// the header of the assistant's answer, and tokenizes them. Of own the tools, the clock and the
// variables are read; what it has none of is that of Options.Chat. Without a template
// that is an error.
func (m *Model) EncodeChat(ctx context.Context, messages []chat.Message, own chat.Options) ([]int32, error) {
	if n := len(messages); n > 0 && messages[n-1].Role == "user" {
		if _, other := messages[n-1].Extra.Get("content"); !other && !messages[n-1].NoContent {
			if err := CheckPrompt(messages[n-1].Content); err != nil {
				return nil, err
			}
		}
	}
	return m.encodeChat(ctx, messages, own, true)
}

// EncodeDialogue is EncodeChat without the header of an answer to come: a dialogue as
// it is.
func (m *Model) EncodeDialogue(ctx context.Context, messages []chat.Message, own chat.Options) ([]int32, error) {
	return m.encodeChat(ctx, messages, own, false)
}

func (m *Model) encodeChat(ctx context.Context, messages []chat.Message, own chat.Options, header bool) ([]int32, error) {
	template, o, err := m.ChatTemplate(own)
	if err != nil {
		return nil, err
	}
	o.AddGenerationPrompt = header
	text, err := template.Render(ctx, messages, o)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	return m.tokenize(text, false) // the template wrote the special tokens
}

// EncodeTurn tokenizes what the last message, the user's, adds to a conversation that the
// model has run up to the end of its last answer: the end of that answer, the message and
// the header of the answer to come. whole tells that ids are the whole conversation instead,
// as EncodeChat makes them: of a first message, and of a template that writes what was said
// before in another way than it was run, as Qwen3's drops the thoughts of earlier answers.
func (m *Model) EncodeTurn(ctx context.Context, messages []chat.Message, own chat.Options) (ids []int32, whole bool, err error) {
	n := len(messages)
	if n < 2 || messages[n-2].Role != "assistant" {
		ids, err = m.EncodeChat(ctx, messages, own)
		return ids, true, err
	}
	template, o, err := m.ChatTemplate(own)
	if err != nil {
		return nil, false, err
	}
	o.AddGenerationPrompt = true
	before, err := template.Render(ctx, messages[:n-2], o)
	if err != nil {
		return nil, false, fmt.Errorf("model %s: %w", m.Name, err)
	}
	text, err := template.Render(ctx, messages, o)
	if err != nil {
		return nil, false, fmt.Errorf("model %s: %w", m.Name, err)
	}
	rest, same := strings.CutPrefix(text, before)
	// What was run may have had other blanks before the answer.
	rest, found := strings.CutPrefix(strings.TrimLeftFunc(rest, unicode.IsSpace), messages[n-2].Content)
	whole = !same || !found
	if whole {
		rest = text
	}
	ids, err = m.tokenize(rest, false) // the template wrote the special tokens
	return ids, whole, err
}

// EncodeContext tokenizes what stands before all that a user may ask of a text: the beginning of a message with the text, after a system
// prompt where there is one (nil: none). The question, and the end of the message, are [Model.EncodeBehind]'s.
func (m *Model) EncodeContext(ctx context.Context, system *string, text string) ([]int32, error) {
	messages := []chat.Message{{Role: "user", Content: text}}
	if system != nil {
		messages = slices.Insert(messages, 0, chat.Message{Role: "system", Content: *system})
	}
	n := len(messages) - 1
	before, _, err := m.around(ctx, messages, n, len(text))
	if err != nil {
		return nil, err
	}
	return m.tokenize(before, false)
}

// EncodeBehind tokenizes what follows a context: messages whose first is what the user says behind it.
func (m *Model) EncodeBehind(ctx context.Context, messages []chat.Message) ([]int32, error) {
	_, after, err := m.around(ctx, messages, 0, 0)
	if err != nil {
		return nil, err
	}
	return m.tokenize(after, false)
}

// around is [chat.Template.Around] with the header of an answer to come.
func (m *Model) around(ctx context.Context, messages []chat.Message, message, n int) (before, after string, err error) {
	template, o, err := m.ChatTemplate(chat.Options{})
	if err != nil {
		return "", "", err
	}
	o.AddGenerationPrompt = true
	if before, after, err = template.Around(ctx, messages, o, message, n); err != nil {
		err = fmt.Errorf("model %s: %w", m.Name, err)
	}
	return before, after, err
}

// ChatTemplate returns the model's chat template and what it is rendered with: the
// tokens, and of own or else of Options.Chat the tools, the clock (the time of opening if none was
// given) and the variables, which add up. A variable that the template does not read is an error.
func (m *Model) ChatTemplate(own chat.Options) (*chat.Template, chat.Options, error) {
	o := m.chat
	if err := m.NeedChatTemplate(); err != nil {
		return nil, o, err
	}
	template, err := m.template()
	if err != nil {
		return nil, o, fmt.Errorf("model %s: %w", m.Name, err)
	}
	if len(own.Extra) > 0 {
		all := make(map[string]any)
		maps.Copy(all, o.Extra)
		maps.Copy(all, own.Extra)
		o.Extra = all
	}
	for name := range o.Extra {
		if !template.Reads(name) {
			return nil, o, fmt.Errorf("model %s: chat option %s: the chat template does not read it", m.Name, name)
		}
	}
	c := m.Tokenizer.Config()
	if o.EOS = c.EOS; !m.source.Named || m.Tokenizer.Begins(c.BOS) {
		o.BOS = c.BOS
	}
	if own.Tools != nil {
		o.Tools = own.Tools
	}
	if o.Now = cmp.Or(own.Now, o.Now); o.Now.IsZero() {
		o.Now = time.Now() // of shapes alone
	}
	return template, o, nil
}

// endTurns makes the token that ends an assistant's turn an end token. Files name another one where
// a model was tuned for chats, or its template changed, after them; it would run on into the next turn.
func (m *Model) endTurns() {
	id, ok := m.turnEnd()
	if !ok && m.source.Text != "" && m.Tokenizer != nil {
		m.addNote("chat template of %s: it ends the assistant's turns with no special token of the model, so that answers may run on", m.source.From)
	}
	if !ok || slices.Contains(m.Config.EOS, id) {
		return
	}
	text, _ := m.Tokenizer.IDToToken(id)
	m.addNote("the chat template ends the assistant's turns with %s (%d), which is not in eos_token_id %d: it ends responses, too", text, id, m.Config.EOS)
	m.Config.EOS = append(slices.Clip(m.Config.EOS), id)
}

// turnEnd is the special token that the chat template puts after what an assistant says; ok is
// false where there is none.
func (m *Model) turnEnd() (id int32, ok bool) {
	if !m.HasChatTemplate() {
		return 0, false
	}
	template, o, err := m.ChatTemplate(chat.Options{})
	if err != nil { // which whoever needs it is told
		return 0, false
	}
	const said = "what the assistant says"
	text, err := template.Render(context.Background(), []chat.Message{{Role: "user", Content: "what the user says"}, {Role: "assistant", Content: said}}, o)
	at := strings.LastIndex(text, said)
	if err != nil || at < 0 {
		return 0, false
	}
	ids, err := m.Tokenizer.Encode(strings.TrimSpace(text[at+len(said):]), false)
	if err != nil || len(ids) == 0 || int(ids[0]) >= m.Config.Vocab || ids[0] == m.Config.BOS || !m.Tokenizer.IsSpecial(ids[0]) {
		return 0, false
	}
	return ids[0], true
}

// UserTurn is how a chat template frames the message of a user: the ids before and after what is said.
type UserTurn struct{ Begins, Ends []int32 }

// UserTurn is of a conversation's first message, with what makes the assistant answer behind it; nil without a chat template.
func (m *Model) UserTurn() *UserTurn {
	if !m.HasChatTemplate() {
		return nil
	}
	template, o, err := m.ChatTemplate(chat.Options{})
	if err != nil { // which whoever needs it is told
		return nil
	}
	o.AddGenerationPrompt = true
	const said = "what the user says"
	text, err := template.Render(context.Background(), []chat.Message{{Role: "user", Content: said}}, o)
	before, after, found := strings.Cut(text, said)
	if err != nil || !found {
		return nil
	}
	begins, err := m.tokenize(before, false)
	if err != nil {
		return nil
	}
	ends, err := m.tokenize(after, false)
	if err != nil {
		return nil
	}
	return &UserTurn{begins, ends}
}

// ChatVariables tells whether Options.Chat has variables for the chat template.
func (m *Model) ChatVariables() bool { return len(m.chat.Extra) > 0 }

// NeedChatTemplate is the reason why EncodeChat cannot work: there is no tokenizer, or no template.
func (m *Model) NeedChatTemplate() error {
	if _, err := m.NeedTokenizer(); err != nil || m.HasChatTemplate() {
		return err
	}
	return fmt.Errorf("model %s has no chat template; --chat-template gives it one, of a file or by a name, as chatml", m.Name)
}

// HasChatTemplate tells whether EncodeChat can work.
func (m *Model) HasChatTemplate() bool {
	return m.Tokenizer != nil && m.Tokenizer.Config().ChatTemplate != ""
}
