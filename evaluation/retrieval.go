package evaluation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"glimpse/datasets"
	"glimpse/eviction"
	"glimpse/model"
)

// patternTasks are those whose answers are copied from the prompt.
var patternTasks = []string{"section", "needle"}

// Retrievals are n prompts whose answers are copied from them.
func Retrievals(m *model.Model, split datasets.Split, tokens, samples int, seed uint64) (n int, at func(i int) (eviction.Retrieval, error), err error) {
	if !datasets.Knows(m.Config.Vocab) {
		return samples, func(i int) (eviction.Retrieval, error) { return randomCopy(m, tokens, seed, i) }, nil
	}
	var streams []*datasets.Stream
	for _, task := range patternTasks {
		s, err := datasets.NewStream([]string{task}, split, tokens, seed)
		if err != nil {
			return 0, nil, err
		}
		streams = append(streams, s)
	}
	return samples * len(streams), func(i int) (eviction.Retrieval, error) {
		e, err := streams[i%len(streams)].At(i / len(streams))
		return eviction.Retrieval{Prompt: e.Prompt, Answer: e.Answer}, err
	}, nil
}

// The lengths of a random copy: of the sequence that is repeated, and of the part
// of it that the prompt ends with.
const copyLength, copyShown = 32, 8

// randomCopy is random tokens among which a sequence stands whose beginning is
// repeated at the end; its rest is the answer.
func randomCopy(m *model.Model, tokens int, seed uint64, i int) (eviction.Retrieval, error) {
	if least := 2*copyLength + copyShown; tokens < least {
		return eviction.Retrieval{}, fmt.Errorf("prompt length: got %d tokens, want at least %d", tokens, least)
	}
	var special []int32
	if m.Tokenizer != nil {
		special = m.Tokenizer.SpecialIDs()
	}
	rng := rand.New(rand.NewPCG(seed, uint64(i)))
	var prompt []int32
	if m.Config.BOS >= 0 {
		prompt = append(prompt, m.Config.BOS)
	}
	for len(prompt) < tokens-copyShown {
		if id := int32(rng.IntN(m.Config.Vocab)); !slices.Contains(special, id) {
			prompt = append(prompt, id)
		}
	}
	from := 1 + rng.IntN(len(prompt)-copyLength-1)
	passage := prompt[from : from+copyLength]
	answer := slices.Clone(passage[copyShown:])
	return eviction.Retrieval{Prompt: append(prompt, passage[:copyShown]...), Answer: answer}, nil
}
