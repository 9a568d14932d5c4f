package training

import (
	"context"
	"fmt"
	"testing"

	"glimpse/model"
	"glimpse/model/modeltest"

	_ "glimpse/lora"
)

// lookahead is an adapter as the paper trains it, with its loss.
func lookahead(b testing.TB, m *model.Model) (model.RowsAdapter, AdapterConfig) {
	b.Helper()
	kind, err := model.RowsKinds.Lookup("lookaheadkv")
	if err != nil {
		b.Fatal(err)
	}
	a, err := kind.New(m, model.AdapterConfig{Rows: 32, Rank: 8, Alpha: 32, Modules: model.Modules, InitToken: 6, InitNoise: 0.3})
	if err != nil {
		b.Fatal(err)
	}
	return a, AdapterConfig{Loss: kind.Loss}
}

// BenchmarkStep measures training steps without caches against the prefill in them
// and their floor, in turn within one run: of the built-in model at 512 prompt tokens,
// and of a random model of 15 million parameters that has the context for more.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		model   string
		prompt  int
		repeats int
	}{{"built-in", 512, 40}, {"random", 512, 20}, {"random", 2048, 9}, {"random", 8192, 3}} {
		for _, response := range []int{16, 64} {
			b.Run(fmt.Sprintf("%s/prompt=%d/response=%d", c.model, c.prompt, response), func(b *testing.B) {
				var m *model.Model
				if c.model == "random" {
					m = modeltest.Llama{Hidden: 512, Layers: 4, Heads: 8, KVHeads: 2, HeadDim: 64, Intermediate: 2048,
						Vocab: 512, MaxPositions: 8192 + 128, Seed: 1}.Open(b, "cpu")
				} else {
					var err error
					if m, err = model.Open("", model.Options{}); err != nil {
						b.Fatal(err)
					}
					defer m.Close()
				}
				a, config := lookahead(b, m)
				tokens := modeltest.Tokens(m, 1, c.prompt+response)
				var timing Timing
				for b.Loop() {
					var err error
					if timing, err = Measure(context.Background(), m, a, config, tokens[:c.prompt], tokens[c.prompt:], c.repeats); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(timing.Step)/1e6, "step-ms")
				b.ReportMetric(float64(timing.Prefill)/1e6, "prefill-ms")
				b.ReportMetric(timing.Floor, "floor")
				b.ReportMetric(timing.Ratio(), "step/(prefill·floor)")
			})
		}
	}
}
