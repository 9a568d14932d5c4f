package evaluation

import (
	"context"
	"errors"
	"fmt"

	"glimpse/model/chat"
)

// Truncation is what is left out of a prompt that is too long.
type Truncation string

const (
	TruncateNone   Truncation = "none"   // nothing: such a sample fails
	TruncateLeft   Truncation = "left"   // its beginning
	TruncateMiddle Truncation = "middle" // its middle; half of the rest is from each end, as LongBench has it
)

// ParseTruncation reads the value of a flag.
func ParseTruncation(s string) (Truncation, error) {
	switch t := Truncation(s); t {
	case TruncateNone, TruncateLeft, TruncateMiddle:
		return t, nil
	}
	return "", fmt.Errorf("truncate: got %q, want %s, %s or %s", s, TruncateMiddle, TruncateLeft, TruncateNone)
}

// ErrLong is of a prompt that is not cut and has more tokens than the model, or the user, allows.
var ErrLong = errors.New("--truncate middle or left cuts it")

// Prompt is a prompt before it is tokens. One of Text, Messages and IDs is set.
type Prompt struct {
	Text     string
	Messages []chat.Message
	Tools    []any   // beside messages: the functions that the model may call; nil without any
	IDs      []int32 // the model gets them as they are
	// Raw text does not go into the chat template, whatever the user asks for.
	Raw bool
	// Begin is what the answer begins with: it follows the prompt, behind the chat template.
	Begin string
}

// EncodePrompt makes the tokens of a prompt whose answer has at most maxNew: text becomes the
// user's message in the model's chat template, if it has one and neither the prompt nor the
// user wants it raw. A prompt of more than Setting.MaxPrompt tokens, or of more than leave
// room for the answer, is truncated as Setting.Truncate says. What is cut is text, or ids,
// before the template is put around it; of messages it is the last of the user.
func (s *Setting) EncodePrompt(ctx context.Context, p Prompt, maxNew int) ([]int32, error) {
	ids, _, err := s.EncodeMessages(ctx, p, maxNew)
	return ids, err
}

// EncodeMessages is Encode that also returns the messages that the tokens are of, where they
// went into the chat template: with what was cut.
func (s *Setting) EncodeMessages(ctx context.Context, p Prompt, maxNew int) (ids []int32, messages []chat.Message, err error) {
	most := s.MaxTokens(maxNew)
	if most < 1 {
		return nil, nil, fmt.Errorf("prompt: an answer of %d tokens leaves no room in the model's %d", maxNew, s.Model.Config.MaxPositions)
	}
	if p.IDs != nil {
		ids, err = s.cutTokens(p.IDs, most)
		return ids, nil, err
	}
	raw := p.Raw || s.Raw || !s.Model.HasChatTemplate()
	if raw && len(p.Messages) > 0 {
		if s.Model.HasChatTemplate() {
			return nil, nil, fmt.Errorf("prompt: messages, want text where prompts do not go into the chat template")
		}
		return nil, nil, fmt.Errorf("prompt: messages: %w", s.Model.NeedChatTemplate())
	}
	if raw {
		ids, err := s.Model.Encode(p.Text + p.Begin)
		if err != nil {
			return nil, nil, err
		}
		ids, err = s.cutTokens(ids, most)
		return ids, nil, err
	}
	messages = p.Messages
	if len(messages) == 0 {
		messages = []chat.Message{{Role: "user", Content: p.Text}}
	}
	var begin []int32
	if p.Begin != "" {
		if begin, err = s.Model.Tokenizer.Encode(p.Begin, false); err != nil {
			return nil, nil, fmt.Errorf("tokenize: %w", err)
		}
		if most -= len(begin); most < 1 {
			return nil, nil, fmt.Errorf("prompt: %d tokens that the answer begins with leave no room for it", len(begin))
		}
	}
	ids, err = s.Model.EncodeChat(ctx, messages, chat.Options{Tools: p.Tools})
	if err == nil && len(ids) > most {
		ids, messages, err = s.shorten(ctx, messages, p.Tools, len(ids), most)
	}
	if err != nil {
		return nil, nil, err
	}
	return append(ids, begin...), messages, nil
}

// MaxTokens is how long a prompt may be whose answer has at most maxNew tokens; the last
// one is not run.
func (s *Setting) MaxTokens(maxNew int) int {
	most := s.Model.Config.MaxPositions - max(maxNew, 1) + 1
	if s.MaxPrompt > 0 {
		most = min(most, s.MaxPrompt)
	}
	return most
}

// cutTokens leaves at most so many tokens.
func (s *Setting) cutTokens(ids []int32, most int) ([]int32, error) {
	over := len(ids) - most
	switch {
	case over <= 0:
		return ids, nil
	case s.Truncate == TruncateLeft:
		if bos := s.Model.Config.BOS; bos >= 0 && ids[0] == bos { // it stays in front
			return append([]int32{bos}, ids[over+1:]...), nil
		}
		return ids[over:], nil
	case s.Truncate == TruncateMiddle:
		head := most - most/2
		return append(ids[:head:head], ids[len(ids)-most/2:]...), nil
	}
	return nil, fmt.Errorf("prompt: %d tokens, want at most %d; %w", len(ids), most, ErrLong)
}

// shorten cuts the last message of the user until the whole fits. Cut text is made of
// tokens and becomes tokens again, which may be more: then more is cut.
func (s *Setting) shorten(ctx context.Context, messages []chat.Message, tools []any, length, most int) ([]int32, []chat.Message, error) {
	if s.Truncate == TruncateNone || s.Truncate == "" {
		return nil, nil, fmt.Errorf("prompt: %d tokens with the chat template, want at most %d; %w", length, most, ErrLong)
	}
	last := -1
	for i, m := range messages {
		if m.Role == "user" {
			last = i
		}
	}
	if last < 0 {
		return nil, nil, fmt.Errorf("prompt: %d tokens, want at most %d, and no message of a user to cut", length, most)
	}
	content, err := s.Model.Tokenizer.Encode(messages[last].Content, false)
	if err != nil {
		return nil, nil, fmt.Errorf("tokenize: %w", err)
	}
	keep := len(content)
	for length > most {
		around := length - keep
		if keep -= length - most; keep < 1 {
			return nil, nil, fmt.Errorf("prompt: %d tokens around the message of the user leave nothing of it in %d", around, most)
		}
		var text string
		if s.Truncate == TruncateLeft {
			text, err = s.Model.Tokenizer.Decode(content[len(content)-keep:], true)
		} else {
			var head, tail string
			if head, err = s.Model.Tokenizer.Decode(content[:keep-keep/2], true); err == nil {
				tail, err = s.Model.Tokenizer.Decode(content[len(content)-keep/2:], true)
			}
			text = head + tail
		}
		if err != nil {
			return nil, nil, fmt.Errorf("tokenize: %w", err)
		}
		cut := append([]chat.Message(nil), messages...)
		cut[last] = cut[last].WithText(text)
		ids, err := s.Model.EncodeChat(ctx, cut, chat.Options{Tools: tools})
		if err != nil {
			return nil, nil, err
		}
		if length = len(ids); length <= most {
			return ids, cut, nil
		}
	}
	return nil, nil, fmt.Errorf("prompt: %d tokens, want at most %d", length, most)
}
