package tasks

import (
	"context"
	"fmt"

	"glimpse/evaluation"
)

// ends says how LongBench (Bai et al. 2023, arXiv:2308.14508) shortens a prompt of more
// than n tokens: it keeps tokens of both ends, makes text of them, and that the prompt.
type ends int

const (
	halves ends = iota // ⌊n/2⌋ tokens of each end, decoded by themselves (pred.py of LongBench)
	joined             // ⌊n/2⌋ of the beginning and ⌈n/2⌉ of the end, decoded together (pred.py of LongBench v2)
)

// encodeLong makes the tokens of a prompt as the pred.py of LongBench do: a prompt whose
// text, with the tokenizer's special tokens, is longer than Setting.MaxPrompt loses its
// middle, and what is left goes into the chat template, unless it is raw. Without a
// MaxPrompt, and where template or new tokenization make it longer than the model takes,
// it is cut to what leaves room for the answer. With --truncate left that rule is used.
func encodeLong(ctx context.Context, s *evaluation.Setting, text string, raw bool, maxNew int, how ends) ([]int32, error) {
	if s.Truncate == evaluation.TruncateLeft {
		return s.Encode(ctx, evaluation.Prompt{Text: text, Raw: raw}, maxNew)
	}
	whole := *s // how much the model takes, not the benchmark's limit
	whole.MaxPrompt, whole.Truncate = 0, evaluation.TruncateNone
	room := whole.MaxTokens(maxNew)
	if room < 1 {
		return nil, fmt.Errorf("prompt: an answer of %d tokens leaves no room in the model's %d", maxNew, s.Model.Config.MaxPositions)
	}
	ids, err := s.Model.Encode(text)
	if err != nil {
		return nil, err
	}
	limit := len(ids)
	if s.MaxPrompt > 0 {
		limit = s.MaxPrompt
	}
	// Unbounded, so that what a template adds is seen before anything is refused.
	model := *s.Model
	model.Config.MaxPositions = 1 << 30
	whole.Model = &model
	for limit = min(limit, room); limit > 1; {
		short := text
		if len(ids) > limit {
			if short, err = cutMiddle(s, ids, limit, how); err != nil {
				return nil, err
			}
		}
		out, err := whole.Encode(ctx, evaluation.Prompt{Text: short, Raw: raw}, maxNew)
		if err != nil || len(out) <= room {
			return out, err
		}
		limit -= len(out) - room
	}
	return nil, fmt.Errorf("prompt: an answer of %d tokens and the chat template leave no room in the model's %d", maxNew, s.Model.Config.MaxPositions)
}

// cutMiddle returns the text of at most limit of the tokens, without special ones.
func cutMiddle(s *evaluation.Setting, ids []int32, limit int, how ends) (string, error) {
	head, tail := ids[:limit/2], ids[len(ids)-limit/2:]
	if how == joined {
		tail = ids[len(ids)-(limit-limit/2):]
		return s.Model.Tokenizer.Decode(append(head[:len(head):len(head)], tail...), true)
	}
	front, err := s.Model.Tokenizer.Decode(head, true)
	if err != nil {
		return "", err
	}
	back, err := s.Model.Tokenizer.Decode(tail, true)
	return front + back, err
}
