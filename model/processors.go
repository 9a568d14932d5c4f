package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Processors change logits before a token is chosen. Names and rules are as in
// generation_config.json in transformers; zero values change nothing.
type Processors struct {
	// RepetitionPenalty divides positive logits of tokens that the text has, prompt
	// included, and multiplies negative ones (Keskar et al. 2019, arXiv:1909.05858); 0 and 1: none.
	RepetitionPenalty float64 `json:"repetition_penalty,omitzero"`
	// NoRepeatNGram bans tokens that would repeat so many in a row of the text.
	NoRepeatNGram int `json:"no_repeat_ngram_size,omitzero"`
	// BadWords are banned, each as a whole: its last token where the others came before.
	BadWords [][]int32 `json:"bad_words_ids,omitempty"`
	// The end tokens are banned until the text, prompt included, has MinLength tokens,
	// and the response MinNew.
	MinLength int     `json:"min_length,omitzero"`
	MinNew    int     `json:"min_new_tokens,omitzero"`
	End       []int32 `json:"-"` // the model's, once more
	// Suppress are banned, BeginSuppress for the first token of a response.
	Suppress      []int32 `json:"suppress_tokens,omitempty"`
	BeginSuppress []int32 `json:"begin_suppress_tokens,omitempty"`

	// Of a request alone, with the rules of OpenAI's API: PresencePenalty is subtracted from the logits of tokens
	// that the response has, FrequencyPenalty once for each time; Bias is added.
	PresencePenalty  float64           `json:"-"`
	FrequencyPenalty float64           `json:"-"`
	Bias             map[int32]float64 `json:"-"`
	// Constraint (may be nil) says which tokens may follow. It belongs to one response.
	Constraint Constraint `json:"-"`
}

// Constraint is a language that a response is a text of.
type Constraint interface {
	// Mask makes the logits of tokens that may not follow −Inf. An error ends the response.
	Mask(logits []float32) error
	// Accept takes the token that follows.
	Accept(id int32) error
}

// Validate checks the ranges.
func (p *Processors) Validate() error {
	switch {
	case !(p.RepetitionPenalty >= 0) || math.IsInf(p.RepetitionPenalty, 0):
		return fmt.Errorf("repetition_penalty: got %v, want a positive number", p.RepetitionPenalty)
	case p.NoRepeatNGram < 0:
		return fmt.Errorf("no_repeat_ngram_size: got %d, want at least 0", p.NoRepeatNGram)
	case p.MinLength < 0:
		return fmt.Errorf("min_length: got %d, want at least 0", p.MinLength)
	case p.MinNew < 0:
		return fmt.Errorf("min_new_tokens: got %d, want at least 0", p.MinNew)
	case slices.ContainsFunc(p.BadWords, func(w []int32) bool { return len(w) == 0 }):
		return fmt.Errorf("bad_words_ids: got an empty list, want at least one token")
	}
	return nil
}

func (p *Processors) Penalises() bool { return p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1 }

func (p *Processors) Active() bool {
	return p.Penalises() || p.NoRepeatNGram > 0 || p.MinLength > 0 || p.MinNew > 0 ||
		len(p.BadWords)+len(p.Suppress)+len(p.BeginSuppress)+len(p.Bias) > 0 ||
		p.PresencePenalty != 0 || p.FrequencyPenalty != 0 || p.Constraint != nil
}

// String lists what is active by its keys; "" is nothing.
func (p *Processors) String() string {
	var parts []string
	if p.Penalises() {
		parts = append(parts, fmt.Sprint("repetition_penalty ", p.RepetitionPenalty))
	}
	for _, n := range []struct {
		key   string
		value int
	}{
		{"no_repeat_ngram_size %d", p.NoRepeatNGram}, {"min_length %d", p.MinLength}, {"min_new_tokens %d", p.MinNew},
		{"%d bad_words_ids", len(p.BadWords)}, {"%d suppress_tokens", len(p.Suppress)}, {"%d begin_suppress_tokens", len(p.BeginSuppress)},
	} {
		if n.value > 0 {
			parts = append(parts, fmt.Sprintf(n.key, n.value))
		}
	}
	return strings.Join(parts, ", ")
}
