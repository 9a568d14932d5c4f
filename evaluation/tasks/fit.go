package tasks

import (
	"context"
	"errors"
	"fmt"

	"glimpse/evaluation"
	"glimpse/model/chat"
)

// encodeTurn makes the tokens of a user's text and the beginning of the answer: the chat
// template goes around the former, and the latter follows it. Raw, or for a model without a
// template, both are one text.
func encodeTurn(ctx context.Context, s *evaluation.Setting, user, begin string) ([]int32, error) {
	if begin == "" || s.Raw || !s.Model.HasChatTemplate() {
		return encodeUser(ctx, s, user+begin, false)
	}
	ids, err := encodeUser(ctx, s, user, false)
	if err != nil {
		return nil, err
	}
	tail, err := s.Model.Tokenizer.Encode(begin, false)
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	return append(ids, tail...), nil
}

// encodeUser makes the tokens of a user's text, in the chat template unless it is raw, or the model has none.
func encodeUser(ctx context.Context, s *evaluation.Setting, user string, raw bool) ([]int32, error) {
	if raw || s.Raw || !s.Model.HasChatTemplate() {
		return s.Model.Encode(user)
	}
	return s.Model.EncodeChat(ctx, []chat.Message{{Role: "user", Content: user}}, chat.Options{})
}

// draft is a prompt whose length is still open. It has so many units, which are large parts
// (lines, documents, words), and so many fillers, which are small ones and bring it to its
// length; a variant is another choice of the last filler. Text of the same numbers is the
// same.
type draft struct {
	// text returns what the user says and how the answer begins. errNoMore where there
	// are not so many units or fillers.
	text     func(units, fillers, variant int) (user, begin string, err error)
	variants int      // how many there are
	answers  []string // what the model's must have in it
}

// errNoMore says that a draft has not so many parts.
var errNoMore = errors.New("the data holds no more")

// fit finds the number of units and fillers with which a draft has exactly so many tokens
// with the model's tokenizer and chat template, and returns its tokens and what the user says
// in it. A text has not as many tokens as its parts together, so that it is tried: first as
// many units as there is room for, then fillers.
func fit(ctx context.Context, s *evaluation.Setting, d draft, tokens int) (ids []int32, user string, err error) {
	// The text that is found is the last one that was measured.
	measure := func(units, fillers, variant int) ([]int32, error) {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		var begin string
		var err error
		if user, begin, err = d.text(units, fillers, variant); err != nil {
			return nil, err
		}
		return encodeTurn(ctx, s, user, begin)
	}
	units, ids, err := most(tokens, func(n int) ([]int32, error) { return measure(n, 0, 0) })
	switch {
	case errors.Is(err, errTooLong):
		return nil, "", fmt.Errorf("the prompt has %d tokens around its haystack, want at most %d", len(ids), tokens)
	case err != nil:
		return nil, "", err
	case len(ids) == tokens:
		return ids, user, nil
	}
	for fewer := 0; fewer <= min(8, units); fewer = max(1, 2*fewer) { // units make room for fillers
		n, ids, err := most(tokens, func(n int) ([]int32, error) { return measure(units-fewer, n, 0) })
		if err != nil && !errors.Is(err, errTooLong) {
			return nil, "", err
		}
		if err == nil && len(ids) == tokens {
			return ids, user, nil
		}
		for variant := 1; variant < d.variants; variant++ {
			for _, n := range []int{n, n + 1} {
				if n == 0 {
					continue
				}
				ids, err := measure(units-fewer, n, variant)
				switch {
				case errors.Is(err, errNoMore):
				case err != nil:
					return nil, "", err
				case len(ids) == tokens:
					return ids, user, nil
				}
			}
		}
	}
	return nil, "", fmt.Errorf("no text of exactly %d tokens was found with this tokenizer", tokens)
}

// errTooLong says that nothing is too much already.
var errTooLong = errors.New("too long")

// most finds the largest n whose text has at most so many tokens, and returns these. It
// takes lengths to rise with n, about linearly.
func most(tokens int, measure func(n int) ([]int32, error)) (n int, ids []int32, err error) {
	if ids, err = measure(0); err != nil {
		return 0, nil, err
	}
	base := len(ids)
	if base > tokens {
		return 0, ids, errTooLong
	}
	low, high, highLen := 0, -1, 0 // high: too many, once it is known
	step := 1
	for tries := 0; len(ids) < tokens && high != low+1; tries++ {
		next := low + step
		switch {
		case high < 0 && low > 0: // as many as there is room for, each as long as the ones so far
			next = low + max(1, (tokens-len(ids))*low/max(1, len(ids)-base))
		case high >= 0 && tries%3 == 2: // so that it ends
			next = low + (high-low)/2
		case high >= 0:
			next = low + (tokens-len(ids))*(high-low)/max(1, highLen-len(ids))
		}
		if high >= 0 {
			next = min(max(next, low+1), high-1)
		}
		got, err := measure(next)
		switch {
		case errors.Is(err, errNoMore):
			high, highLen = next, tokens+(tokens-len(ids))
			continue
		case err != nil:
			return 0, nil, err
		case len(got) > tokens:
			high, highLen = next, len(got)
		default:
			if len(got) == len(ids) { // parts that take no tokens of their own
				step *= 2
			}
			low, ids = next, got
		}
	}
	return low, ids, nil
}
