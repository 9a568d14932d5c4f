package runner_test

import (
	"slices"
	"testing"

	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// TestProgress: a pass tells of its tokens layer by layer, chunks or not, to their number; a decoding
// step tells nothing.
func TestProgress(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, c := range []struct {
		name          string
		tokens, chunk int
	}{{"whole", 40, 0}, {"chunks", 41, 16}, {"fewer tokens than layers", 2, 0}} {
		t.Run(c.name, func(t *testing.T) {
			r, cache := runner.New(m), kvcache.New(m)
			var passes, told []int
			progress := func(tokens int) func(int) {
				passes = append(passes, tokens)
				return func(more int) { told = append(told, more) }
			}
			if _, err := r.Prefill(t.Context(), cache, make([]int32, c.tokens), runner.PrefillOptions{Chunk: c.chunk, Progress: progress}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Step(t.Context(), cache, 1, runner.Capture{}, nil); err != nil {
				t.Fatal(err)
			}
			sum := 0
			for _, n := range told {
				sum += n
			}
			if !slices.Equal(passes, []int{c.tokens}) || len(told) != m.Config.Layers || sum != c.tokens || slices.Max(told)-slices.Min(told) > 1 {
				t.Errorf("passes %v, layers %v, want one pass of %d tokens, done in %d equal parts", passes, told, c.tokens, m.Config.Layers)
			}
		})
	}
}
