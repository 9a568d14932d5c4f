package generation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"glimpse/datasets"
	"glimpse/internal/registry"
	"glimpse/model"
	"glimpse/model/chat"
)

// Recipe makes training prompts of the readers' rows.
type Recipe struct {
	Doc string
	// Prepare makes the prompt of one record. rng is the record's own. A record that
	// the recipe has no use for is ErrUnusable.
	Prepare func(ctx context.Context, m *model.Model, p datasets.Prompt, l Limits, rng *rand.Rand) (Item, error)
	// Cut is the number of response tokens kept of n.
	Cut func(n int, rng *rand.Rand) int
}

// Limits are settings that all recipes share.
type Limits struct {
	MaxPrompt int  // tokens; records whose prompt is longer are ErrUnusable
	Raw       bool // FormPrompt does not go into the chat template
}

// Recipes lists them by name.
var Recipes = registry.Registry[Recipe]{Noun: "recipe"}

// ErrUnusable marks records that are left out, and counted.
var ErrUnusable = errors.New("unusable")

// Item is a prompt, and the answer that its source gives to it.
type Item struct {
	IDs    []int32
	Source []int32 // nil: there is none
	// Notices are what is said once of all such records, in one line each.
	Notices []string
}

func init() {
	Recipes.Add("asis", Recipe{
		Doc:     "prompts as they are: chats and prompts through the chat template, where an assistant's turn at the end is dropped and answered anew; texts and ids as they stand; one that is too long is an error",
		Prepare: prepareAsIs,
		Cut:     func(n int, _ *rand.Rand) int { return n },
	})
	Recipes.Add("lookaheadkv", Recipe{
		Doc:     "the last assistant turn is dropped and answered anew; running text is cut at a random place (LookaheadKV, arXiv:2603.10899, §4.1)",
		Prepare: prepareLookahead,
		Cut:     func(n int, _ *rand.Rand) int { return n },
	})
	Recipes.Add("judgeq", Recipe{
		Doc:     "the first 90% of a dialogue, turns one after another; the response is cut at a random place (Judge Q, arXiv:2509.10798, app. A.1)",
		Prepare: prepareJudge,
		Cut: func(n int, rng *rand.Rand) int {
			if n == 0 {
				return 0
			}
			// At least one token: a pair without any teaches nothing.
			return 1 + rng.IntN(n)
		},
	})
}

// askPrompt is the prompt of a row that a user's turn or a chat ends, through the chat template. The
// answer that the row gives is no part of it, and is its source. What a user says stays as it is
// if it is raw, or for a model without a template.
func askPrompt(ctx context.Context, m *model.Model, p datasets.Prompt, raw bool) (item Item, err error) {
	answer := p.Chosen
	switch {
	case p.Form == datasets.FormMessages:
		if n := len(p.Messages); p.Messages[n-1].Role == "assistant" {
			answer, p.Messages = p.Messages[n-1].Content, p.Messages[:n-1]
			item.Notices = []string{"an assistant's turn at the end of a record is its answer, and no part of its prompt"}
		}
		if n := len(p.Messages); n == 0 || p.Messages[n-1].Role == "system" {
			return item, fmt.Errorf("no turn to answer: %w", ErrUnusable)
		}
		item.IDs, err = encodeChat(ctx, p, m.EncodeChat)
	case raw || !m.HasChatTemplate():
		item.IDs, err = m.Encode(p.Text)
	default:
		item.IDs, err = encodeChat(ctx, p, m.EncodeChat)
	}
	if err == nil && answer != "" {
		item.Source, err = encodeTail(m, answer)
	}
	item.Notices = append(item.Notices, m.Unread(p)...)
	return item, err
}

// encodeChat encodes the chat of a row.
func encodeChat(ctx context.Context, p datasets.Prompt, encode func(context.Context, []chat.Message, chat.Options) ([]int32, error)) ([]int32, error) {
	messages, tools, err := model.ChatOf(p)
	if err != nil {
		return nil, err
	}
	return encode(ctx, messages, chat.Options{Tools: tools})
}

// completePrompt is the prompt of worked examples, with the answer as its source.
func completePrompt(m *model.Model, p datasets.Prompt) (item Item, err error) {
	if item.IDs, err = m.Encode(p.Text); err == nil {
		item.Source, err = encodeTail(m, p.Chosen)
	}
	return item, err
}

// encodeTail tokenizes what follows a prompt, without special tokens.
func encodeTail(m *model.Model, text string) ([]int32, error) {
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	return t.Encode(text, false)
}

func checkLength(item Item, maxPrompt int) (Item, error) {
	switch {
	case len(item.IDs) == 0:
		return item, fmt.Errorf("empty prompt: %w", ErrUnusable)
	case len(item.IDs) > maxPrompt:
		return item, fmt.Errorf("prompt of %d tokens, want at most %d: %w", len(item.IDs), maxPrompt, ErrUnusable)
	}
	return item, nil
}

func prepareAsIs(ctx context.Context, m *model.Model, p datasets.Prompt, l Limits, _ *rand.Rand) (item Item, err error) {
	switch p.Form {
	case datasets.FormIDs:
		item.IDs, err = p.IDs, p.CheckIDs(m.Config.Vocab)
	case datasets.FormText:
		item.IDs, err = m.Encode(p.Text)
	case datasets.FormFewShot:
		item, err = completePrompt(m, p)
	default:
		if l.Raw && p.Form == datasets.FormMessages {
			return item, errors.New("--raw: messages need the chat template")
		}
		item, err = askPrompt(ctx, m, p, l.Raw)
	}
	return item, err
}

func prepareLookahead(ctx context.Context, m *model.Model, p datasets.Prompt, l Limits, rng *rand.Rand) (item Item, err error) {
	if p.Form != datasets.FormText {
		l.Raw = l.Raw && p.Form != datasets.FormMessages // which have the chat template all the same
		if item, err = prepareAsIs(ctx, m, p, l, rng); err != nil {
			return item, err
		}
		return checkLength(item, l.MaxPrompt)
	}
	ids, err := m.Encode(p.Text)
	if err != nil {
		return item, err
	}
	// At a random place of the text that fits; something must stand on both sides.
	most := min(len(ids)-1, l.MaxPrompt)
	if most < 1 {
		return item, fmt.Errorf("text of %d tokens, want at least 2: %w", len(ids), ErrUnusable)
	}
	cut := 1 + rng.IntN(most)
	return Item{IDs: ids[:cut], Source: ids[cut:]}, nil
}

func prepareJudge(ctx context.Context, m *model.Model, p datasets.Prompt, l Limits, _ *rand.Rand) (Item, error) {
	var ids []int32
	var err error
	switch p.Form {
	case datasets.FormIDs:
		ids, err = p.IDs, p.CheckIDs(m.Config.Vocab)
	case datasets.FormText:
		ids, err = m.Encode(p.Text)
	case datasets.FormFewShot:
		ids, err = m.Encode(p.Text + p.Chosen)
	case datasets.FormPrompt:
		if l.Raw || !m.HasChatTemplate() {
			ids, err = m.Encode(p.Text + p.Chosen)
			break
		}
		p.Form, p.Messages = datasets.FormMessages, []datasets.Message{{Role: "user", Content: p.Text}}
		if p.Chosen != "" {
			p.Messages = append(p.Messages, datasets.Message{Role: "assistant", Content: p.Chosen})
		}
		fallthrough
	default:
		ids, err = encodeChat(ctx, p, m.EncodeDialogue)
	}
	if err != nil {
		return Item{}, err
	}
	keep := len(ids) * 9 / 10
	if keep < 1 {
		return Item{}, fmt.Errorf("dialogue of %d tokens, want at least 2: %w", len(ids), ErrUnusable)
	}
	return checkLength(Item{IDs: ids[:keep], Source: ids[keep:], Notices: m.Unread(p)}, l.MaxPrompt)
}
