package tasks

import (
	"context"
	"fmt"
	"maps"

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
		return s.EncodePrompt(ctx, evaluation.Prompt{Text: text, Raw: raw}, maxNew)
	}
	whole := *s // how much the model takes, not the benchmark's limit
	whole.MaxPrompt = 0
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
	for limit = min(limit, room); limit >= 2 || limit >= len(ids); {
		short := text
		if len(ids) > limit {
			if short, err = cutMiddle(s, ids, limit, how); err != nil {
				return nil, err
			}
		}
		out, err := encodeUser(ctx, s, short, raw)
		if err != nil || len(out) <= room {
			return out, err
		}
		limit = min(limit, len(ids)) - (len(out) - room)
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

// encodeContext makes the tokens of a prompt whose longest part is {context}. A
// prompt of more than Setting.MaxPrompt tokens, or than leave room for the answer, loses the
// end of its context (HELMET, Yen et al. 2024, arXiv:2410.02694, model_utils.py, tokenize).
// With --truncate left or middle that rule is used.
func encodeContext(ctx context.Context, s *evaluation.Setting, template string, values map[string]string, raw bool, maxNew int) ([]int32, error) {
	if s.Truncate == evaluation.TruncateLeft || s.Truncate == evaluation.TruncateMiddle {
		return s.EncodePrompt(ctx, evaluation.Prompt{Text: fillTemplate(template, values), Raw: raw}, maxNew)
	}
	most := s.MaxTokens(maxNew)
	ids, err := encodeUser(ctx, s, fillTemplate(template, values), raw)
	if err != nil || len(ids) <= most {
		return ids, err
	}
	content, err := s.Model.Tokenizer.Encode(values["context"], false)
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	values = maps.Clone(values)
	for keep := len(content); len(ids) > most; {
		if keep -= len(ids) - most; keep < 1 {
			return nil, fmt.Errorf("prompt: what stands around the context leaves nothing of it in %d tokens", most)
		}
		if values["context"], err = s.Model.Tokenizer.Decode(content[:keep], true); err != nil {
			return nil, err
		}
		if ids, err = encodeUser(ctx, s, fillTemplate(template, values), raw); err != nil {
			return nil, err
		}
	}
	return ids, nil
}
