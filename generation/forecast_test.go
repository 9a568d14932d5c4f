package generation_test

import (
	"errors"
	"reflect"
	"regexp"
	"testing"

	"glimpse/eviction"
	"glimpse/generation"
	"glimpse/internal/parallel"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// need is what a response to a prompt of so many tokens needs beside the weights, one at a time.
func need(t *testing.T, m *model.Model, tokens int, opt generation.Options) int64 {
	t.Helper()
	full, err := eviction.New("full", 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := eviction.NewFootprint(t.Context(), m, full, eviction.FootprintOptions{Tokens: tokens, Budget: tokens, MaxNew: opt.MaxNew, Rows: runner.GroupRows(m, opt.Batch)})
	if err != nil {
		t.Fatal(err)
	}
	return f.Need()
}

// TestMemoryChangesNoResponse: with memory for one response at a time the pairs are those of a generation
// that has enough, and a prompt that can never fit is an error that names it.
func TestMemoryChangesNoResponse(t *testing.T) {
	defer parallel.SetThreads(parallel.SetThreads(3))
	m := shallow(t)
	for _, batch := range []int{1, 3, 6} {
		opt := generation.Options{MaxNew: 9, Batch: batch, Sampling: model.Sampling{Temperature: 1, TopP: 1, Seed: 4}}
		want := run(t, m, prompts(t, 0, 10, 128), opt)
		groups := int64((batch + 3) / 4)
		opt.Memory = groups * need(t, m, 144, opt) // 128 tokens and up to an eighth more
		if got := run(t, m, prompts(t, 0, 10, 128), opt); !reflect.DeepEqual(got, want) {
			t.Errorf("batch %d: other pairs with %d bytes of memory", batch, opt.Memory)
		}
		opt.Memory /= 2
		if err := generation.Pairs(t.Context(), m, prompts(t, 0, 10, 128), opt); !errors.Is(err, model.ErrMemory) || !regexp.MustCompile(`^prompt .*: engine: request with a prompt of \d+ tokens: not enough memory: got a need of .* beside the weights, want at most `).MatchString(err.Error()) {
			t.Errorf("batch %d: with half of what one needs: %v", batch, err)
		}
	}
}

// TestCheckMemory: a response that does not fit the memory of the processor is refused before the weights are
// there, with what it needs, has, and could do without; the weights are mapped there. More of them wait.
func TestCheckMemory(t *testing.T) {
	m := modeltest.Llama{Layers: 2, MaxPositions: 2000, Vocab: 64}.Open(t, "cpu")
	opt := generation.Options{MaxNew: 100, Batch: 4}
	one := need(t, m, 1500, opt)
	for percent, want := range map[int64]error{101: nil, 90: model.ErrMemory} {
		host := func() int64 { return one * percent / 100 }
		if err := generation.CheckMemory(t.Context(), m, host, 1500, 0, opt); !errors.Is(err, want) {
			t.Errorf("with %d percent of what is forecast: %v, want %v", percent, err, want)
		} else if want != nil {
			like := `^cpu: not enough memory: [0-9.]+ MiB needed \(weights 0.0 MiB, a prompt of 1500 tokens and up to 100 of its response [0-9.]+ MiB, .*\), [0-9.]+ MiB available; about \d+ tokens of prompt would fit, or take --cache-dtype bf16, or lower --max-prompt`
			if !regexp.MustCompile(like).MatchString(err.Error()) {
				t.Error(err)
			}
		}
	}
	if err := generation.CheckMemory(t.Context(), m, func() int64 { return 0 }, 1500, 0, opt); err != nil {
		t.Errorf("where it is not known what there is: %v", err)
	}
	t.Setenv(model.MemoryVariable, "off")
	if err := generation.CheckMemory(t.Context(), m, func() int64 { return 1 }, 1500, 0, opt); err != nil {
		t.Errorf("where nobody wants to know: %v", err)
	}
}
