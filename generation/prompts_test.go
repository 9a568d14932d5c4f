package generation_test

import (
	"path/filepath"
	"slices"
	"testing"

	"glimpse/datasets"
	"glimpse/generation"
)

// TestSourceOfTasks: with the answers of their source, pairs of the synthetic tasks have the right ones.
func TestSourceOfTasks(t *testing.T) {
	out := filepath.Join(t.TempDir(), "pairs.jsonl")
	job := generation.DefaultJob()
	job.SamplesGiven = true
	job.Tasks, job.Tokens, job.Samples, job.Responses, job.Out = "section,hops", 128, 6, "source", out
	if err := job.Run(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	stream, err := datasets.NewStream([]string{"section", "hops"}, "train", 128, job.Seed)
	if err != nil {
		t.Fatal(err)
	}
	_, pairs, err := datasets.ReadPairs(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(pairs) != 6 {
		t.Fatalf("%d pairs, want 6", len(pairs))
	}
	for i, p := range pairs {
		e, err := stream.At(i)
		if err != nil {
			t.Fatal(err)
		}
		if p.ID != e.ID || !slices.Equal(p.PromptIDs, e.Prompt) || !slices.Equal(p.ResponseIDs, e.Answer) {
			t.Errorf("pair %d is %s with the response %v, want %s with %v", i, p.ID, p.ResponseIDs, e.ID, e.Answer)
		}
	}
}
