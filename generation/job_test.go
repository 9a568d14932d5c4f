package generation

import (
	"slices"
	"testing"

	"glimpse/datasets"
	"glimpse/model"
)

// TestDescriptionsStay: shards that were begun before a setting was added go on.
func TestDescriptionsStay(t *testing.T) {
	s := &Job{Tasks: "all", Split: "train", Tokens: 512, Samples: 64, Seed: 1, Recipe: "asis", Responses: "self", MaxPrompt: 16384, MaxNew: 512, SamplingSeed: 1, Batch: 8,
		SamplingChoice: model.SamplingChoice{From: model.SamplingGreedy}}
	if got, want := s.promptsText(), "synthetic tasks all, 512 tokens, seed 1, settings 8a2efa510426"; got != want {
		t.Errorf("greedy: %s, want %s", got, want)
	}
	s.sampling = model.Sampling{Temperature: 0.7, TopP: 0.9, TopK: 20}
	s.Sources, s.Shards = []datasets.MixSource{{Path: "a.jsonl"}}, 4
	if got, want := s.promptsText(), "1 sources, recipe asis, responses self, prompts of up to 16384 tokens, seed 1, settings 863f114bc548"; got != want {
		t.Errorf("sampled: %s, want %s", got, want)
	}
	seen := []string{s.promptsText()}
	for _, change := range []func(d *model.Sampling){
		func(d *model.Sampling) { d.MinP = 0.1 },
		func(d *model.Sampling) { d.Processors.RepetitionPenalty = 1.1 },
		func(d *model.Sampling) { d.Processors.BadWords = [][]int32{{1, 2}} },
		func(d *model.Sampling) { d.Processors.BadWords = [][]int32{{1, 3}} },
	} {
		before := s.sampling
		change(&s.sampling)
		if d := s.promptsText(); slices.Contains(seen, d) {
			t.Errorf("%v is described as another", s.sampling)
		} else {
			seen = append(seen, d)
		}
		s.sampling = before
	}
}
