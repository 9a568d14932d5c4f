package model

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"glimpse/model/chat"
)

// Encode tokenizes text as it is, with the special tokens that the tokenizer
// puts around every text.
func (m *Model) Encode(text string) ([]int32, error) {
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	ids, err := t.Encode(text, true)
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	return ids, nil
}

// EncodeChat renders messages with the model's chat template, up to and including
// the header of the assistant's answer, and tokenizes them. Tools are the functions that the model
// may call, as chat.Options has them; nil are those of Options.Chat. Without a template
// that is an error.
func (m *Model) EncodeChat(ctx context.Context, messages []chat.Message, tools []any) ([]int32, error) {
	return m.encodeChat(ctx, messages, tools, true)
}

// EncodeDialogue is EncodeChat without the header of an answer to come: a dialogue as
// it is.
func (m *Model) EncodeDialogue(ctx context.Context, messages []chat.Message, tools []any) ([]int32, error) {
	return m.encodeChat(ctx, messages, tools, false)
}

func (m *Model) encodeChat(ctx context.Context, messages []chat.Message, tools []any, header bool) ([]int32, error) {
	template, o, err := m.ChatTemplate()
	if err != nil {
		return nil, err
	}
	o.AddGenerationPrompt = header
	if tools != nil {
		o.Tools = tools
	}
	text, err := template.Render(ctx, messages, o)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	ids, err := m.Tokenizer.Encode(text, false) // the template wrote the special tokens
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	return ids, nil
}

// EncodeTurn tokenizes what the last message, the user's, adds to a conversation that the
// model has run up to the end of its last answer: the end of that answer, the message and
// the header of the answer to come. Of a first message that is EncodeChat. A template that
// rewrites what was said before is an error, since a cache cannot undo it.
func (m *Model) EncodeTurn(ctx context.Context, messages []chat.Message) ([]int32, error) {
	n := len(messages)
	if n < 2 || messages[n-2].Role != "assistant" {
		return m.EncodeChat(ctx, messages, nil)
	}
	template, o, err := m.ChatTemplate()
	if err != nil {
		return nil, err
	}
	o.AddGenerationPrompt = true
	before, err := template.Render(ctx, messages[:n-2], o)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	text, err := template.Render(ctx, messages, o)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	said := messages[n-2].Content
	rest, ok := strings.CutPrefix(text, before)
	at := strings.Index(rest, said)
	if !ok || at < 0 {
		return nil, fmt.Errorf("chat: the template of model %s rewrites what was said before, which the cache cannot undo", m.Name)
	}
	ids, err := m.Tokenizer.Encode(rest[at+len(said):], false) // the template wrote the special tokens
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	return ids, nil
}

// ChatTemplate returns the model's chat template and what it is rendered with: the
// tokens, the variables and the clock of Options.Chat, which is the time of opening
// if none was given. A variable that the template does not read is an error.
func (m *Model) ChatTemplate() (*chat.Template, chat.Options, error) {
	o := m.chat
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, o, err
	}
	c := t.Config()
	if c.ChatTemplate == "" {
		return nil, o, fmt.Errorf("model %s has no chat template", m.Name)
	}
	template, err := chat.Parse(c.ChatTemplate)
	if err != nil {
		return nil, o, fmt.Errorf("model %s: %w", m.Name, err)
	}
	for name := range o.Extra {
		if !template.Reads(name) {
			return nil, o, fmt.Errorf("model %s: chat option %s: the chat template does not read it", m.Name, name)
		}
	}
	o.BOS, o.EOS = c.BOS, c.EOS
	if o.Now.IsZero() {
		o.Now = time.Now() // of shapes alone
	}
	return template, o, nil
}

// endTurns makes the token that ends an assistant's turn an end token. Files name another one where
// a model was tuned for chats, or its template changed, after them; it would run on into the next turn.
func (m *Model) endTurns() {
	id, ok := m.turnEnd()
	if !ok || slices.Contains(m.Config.EOS, id) {
		return
	}
	text, _ := m.Tokenizer.IDToToken(id)
	m.note("the chat template ends the assistant's turns with %s (%d), which is not in eos_token_id %d: it ends responses, too", text, id, m.Config.EOS)
	m.Config.EOS = append(slices.Clip(m.Config.EOS), id)
}

// turnEnd is the special token that the chat template puts after what an assistant says; ok is
// false where there is none.
func (m *Model) turnEnd() (id int32, ok bool) {
	if !m.HasChatTemplate() {
		return 0, false
	}
	template, o, err := m.ChatTemplate()
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

// ChatVariables tells whether Options.Chat has variables for the chat template.
func (m *Model) ChatVariables() bool { return len(m.chat.Extra) > 0 }

// HasChatTemplate tells whether EncodeChat can work.
func (m *Model) HasChatTemplate() bool {
	return m.Tokenizer != nil && m.Tokenizer.Config().ChatTemplate != ""
}
