package generation_test

import (
	"errors"
	"regexp"
	"testing"

	"glimpse/generation"
	"glimpse/internal/parallel"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestForecast: on the processor the caches and the scratch memory of a generation are
// foretold exactly, for any batch, fewer prompts than that, and one token.
func TestForecast(t *testing.T) {
	defer parallel.SetThreads(parallel.SetThreads(3))
	for _, dtype := range []string{"float32", "bf16"} {
		m := modeltest.Llama{Layers: 2, MaxPositions: 200}.Open(t, "cpu")
		if err := m.SetCacheDType(dtype); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ prompt, prompts, maxNew, batch int }{{60, 20, 90, 8}, {60, 3, 20, 8}, {100, 9, 1, 2}, {190, 30, 50, 3}, {200, 5, 5, 4}} {
			opt := generation.Options{MaxNew: c.maxNew, Batch: c.batch}
			k, err := generation.Forecast(t.Context(), m, c.prompt, c.prompts, opt)
			if err != nil {
				t.Fatal(err)
			}
			cache, scratch, sequences, err := generation.Used(t.Context(), m, func(i int) []int32 { return modeltest.Tokens(m, uint64(i), c.prompt) }, c.prompts, opt)
			if err != nil {
				t.Fatal(err)
			}
			if c.maxNew == 1 || c.prompt == 200 { // one after the other, none of which stays
				sequences, cache = min(3, (c.batch+3)/4), int64(c.prompt)*m.Config.CacheBytesPerToken(m.CacheDType().Size())
			}
			if k.Cache != cache || k.Activations != scratch || k.Sequences != sequences {
				t.Errorf("%s %+v: %d bytes of %d caches and %d of scratch memory are foretold, %d of %d and %d were used", dtype, c, k.Cache, k.Sequences, k.Activations, cache, sequences, scratch)
			}
			if k.Total < k.Weights+k.Cache+k.Activations || k.Total > 2*(k.Weights+k.Cache+k.Activations) {
				t.Errorf("%s %+v: forecast %+v", dtype, c, k)
			}
		}
	}
}

// TestCheckMemory: what does not fit the memory of the processor is refused, with what it
// needs, has, and could do without; the weights are mapped there.
func TestCheckMemory(t *testing.T) {
	m := modeltest.Llama{Layers: 2, MaxPositions: 2000, Vocab: 64}.Open(t, "cpu")
	opt := generation.Options{MaxNew: 100, Batch: 4}
	k, err := generation.Forecast(t.Context(), m, 1500, 0, opt)
	if err != nil {
		t.Fatal(err)
	}
	for percent, want := range map[int64]error{101: nil, 90: model.ErrMemory} {
		host := func() int64 { return (k.Total - k.Weights) * percent / 100 }
		if err := generation.CheckMemory(t.Context(), m, host, 1500, 0, opt); !errors.Is(err, want) {
			t.Errorf("with %d percent of what is forecast: %v, want %v", percent, err, want)
		} else if want != nil {
			like := `^cpu: not enough memory: [0-9.]+ MiB needed \(weights 0.0 MiB, keys and values of 4 sequences of 1500 and 100 tokens [0-9.]+ MiB, .*\), [0-9.]+ MiB available; about \d+ tokens of prompt would fit, or take --cache-dtype bf16, or lower --batch, --max-prompt`
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
