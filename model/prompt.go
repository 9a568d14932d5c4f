package model

import (
	"context"
	"fmt"

	"glimpse/datasets"
	"glimpse/model/chat"
)

// ChatOf is the chat of a row, which EncodeChat takes: its messages, and its tools or nil. A prompt
// of text is what one user says.
func ChatOf(p datasets.Prompt) (messages []chat.Message, tools []any, err error) {
	if p.Form != datasets.FormMessages {
		return []chat.Message{{Role: "user", Content: p.Text}}, nil, nil
	}
	for i, x := range p.Messages {
		m := chat.Message{Role: x.Role, Content: x.Content, NoContent: x.NoContent}
		for _, f := range x.Extra {
			v, err := chat.ParseJSON(f.Value)
			if err != nil {
				return nil, nil, fmt.Errorf("message %d: field %q: %w", i, f.Name, err)
			}
			m.Extra = append(m.Extra, chat.Member{Key: f.Name, Value: v})
		}
		messages = append(messages, m)
	}
	if p.Tools != nil {
		v, err := chat.ParseJSON(p.Tools)
		if err != nil {
			return nil, nil, fmt.Errorf(`field "tools": %w`, err)
		}
		tools, _ = v.([]any) // which a reader of rows has seen to
	}
	return messages, tools, nil
}

// Unread says of every field and role of a row's chat that no prompt is made of why, in one line each.
func (m *Model) Unread(p datasets.Prompt) (notices []string) {
	for _, name := range p.Dropped {
		notices = append(notices, fmt.Sprintf("field %q of rows is not in their prompts", name))
	}
	if p.Form != datasets.FormMessages || !m.HasChatTemplate() {
		return notices
	}
	template, o, err := m.ChatTemplate(chat.Options{})
	if err != nil {
		return notices
	}
	messages, tools, err := ChatOf(p)
	if err != nil {
		return notices
	}
	for _, key := range template.Unread(messages, tools) {
		notices = append(notices, fmt.Sprintf("field %q of rows is not in their prompts: the chat template of model %s does not read it", key, m.Name))
	}
	if role, ok := template.Dropped(context.Background(), messages, o); ok {
		notices = append(notices, fmt.Sprintf("what the role %q says in rows is not in their prompts: the chat template of model %s drops it", role, m.Name))
	}
	return notices
}
