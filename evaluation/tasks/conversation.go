package tasks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/model/chat"
)

// conversation is what a user says turn by turn. The model's own answers stand between, as it
// gave them.
type conversation struct {
	setting *evaluation.Setting
	system  string // "" for none
	users   []string
	maxNew  int // of each answer
}

// turns make the tokens of each turn. Without a chat template the answers are followed by an
// empty line and what the user says next. The first prompt leaves room for all turns; where
// it must be truncated, it is (see Setting.Encode).
func (d *conversation) turns(ctx context.Context) ([]evaluation.Turn, error) {
	room := d.maxNew
	for _, user := range d.users[1:] {
		ids, err := d.setting.Model.Tokenizer.Encode(user, false)
		if err != nil {
			return nil, fmt.Errorf("tokenize: %w", err)
		}
		const around = 32 // tokens of a template around a message
		room += d.maxNew + len(ids) + around
	}
	prompt := evaluation.Prompt{Text: d.users[0]}
	if d.system != "" && d.templated() {
		prompt = evaluation.Prompt{Messages: []chat.Message{{Role: "system", Content: d.system}, {Role: "user", Content: d.users[0]}}}
	}
	first, messages, err := d.setting.EncodeMessages(ctx, prompt, room)
	if err != nil {
		return nil, err
	}
	if len(messages) > 0 { // the first of the user, who may have said more
		d.users = slices.Concat([]string{messages[len(messages)-1].Content}, d.users[1:])
	}
	return d.turnsAfter(first), nil
}

func (d *conversation) templated() bool { return !d.setting.Raw && d.setting.Model.HasChatTemplate() }

// turnsAfter are the turns that begin with the tokens of the first.
func (d *conversation) turnsAfter(first []int32) []evaluation.Turn {
	out := []evaluation.Turn{{Prompt: evaluation.Fixed(first), MaxNew: d.maxNew}}
	for i := range d.users[1:] {
		out = append(out, evaluation.Turn{MaxNew: d.maxNew, Prompt: func(ctx context.Context, answers []evaluation.Output) ([]int32, bool, error) {
			return d.nextTurn(ctx, i+1, answers)
		}})
	}
	return out
}

// nextTurn is what the turn adds to the answers so far, or the whole conversation.
func (d *conversation) nextTurn(ctx context.Context, turn int, answers []evaluation.Output) (ids []int32, whole bool, err error) {
	if !d.templated() {
		ids, err := d.setting.Model.Tokenizer.Encode("\n\n"+d.users[turn], false)
		if err != nil {
			return nil, false, fmt.Errorf("tokenize: %w", err)
		}
		return ids, false, nil
	}
	var messages []chat.Message
	if d.system != "" {
		messages = append(messages, chat.Message{Role: "system", Content: d.system})
	}
	for i, user := range d.users[:turn+1] {
		if messages = append(messages, chat.Message{Role: "user", Content: user}); i < turn {
			// Templates take the blanks off; the cache has them as they were said.
			messages = append(messages, chat.Message{Role: "assistant", Content: strings.TrimSpace(answers[i].Text)})
		}
	}
	return d.setting.Model.EncodeTurn(ctx, messages, chat.Options{})
}
