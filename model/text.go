package model

import (
	"fmt"

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
// the header of the assistant's answer, and tokenizes them. Without a template
// that is an error.
func (m *Model) EncodeChat(messages []chat.Message) ([]int32, error) {
	return m.encodeChat(messages, true)
}

// EncodeDialogue is EncodeChat without the header of an answer to come: a dialogue as
// it is.
func (m *Model) EncodeDialogue(messages []chat.Message) ([]int32, error) {
	return m.encodeChat(messages, false)
}

func (m *Model) encodeChat(messages []chat.Message, header bool) ([]int32, error) {
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	c := t.Config()
	if c.ChatTemplate == "" {
		return nil, fmt.Errorf("model %s has no chat template", m.Name)
	}
	template, err := chat.Parse(c.ChatTemplate)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	text, err := template.Render(messages, chat.Options{AddGenerationPrompt: header, BOS: c.BOS, EOS: c.EOS})
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	ids, err := t.Encode(text, false) // the template wrote the special tokens
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	return ids, nil
}

// HasChatTemplate tells whether EncodeChat can work.
func (m *Model) HasChatTemplate() bool {
	return m.Tokenizer != nil && m.Tokenizer.Config().ChatTemplate != ""
}
