package eviction_test

import (
	"slices"
	"testing"
	"time"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// BenchmarkBatch decodes the answers of eight sessions together and, in turn, one after the
// other, after a prompt of 256 tokens at a budget of 64: x-alone is how many times as fast
// together, medians of both in one run. The models are the built-in one and random ones of
// 11 and 60 million parameters.
func BenchmarkBatch(b *testing.B) {
	const tokens, budget, steps, sessions = 256, 64, 24, 8
	for _, c := range []struct {
		name string
		open func() *model.Model
	}{
		{"built-in", func() *model.Model {
			m, err := model.Open("", model.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { m.Close() })
			return m
		}},
		{"11M", func() *model.Model {
			return modeltest.Llama{Hidden: 384, Intermediate: 1024, Layers: 6, Heads: 6, KVHeads: 2, HeadDim: 64, Vocab: 2048}.Open(b, "cpu")
		}},
		{"60M", func() *model.Model {
			return modeltest.Llama{Hidden: 768, Intermediate: 2048, Layers: 9, Heads: 12, KVHeads: 4, HeadDim: 64, Vocab: 4096, Tied: true}.Open(b, "cpu")
		}},
	} {
		var m *model.Model
		for _, name := range []string{"full", "snapkv", "h2o", "d2o", "quest"} {
			b.Run("model="+c.name+"/policy="+name, func(b *testing.B) {
				if m == nil {
					m = c.open()
				}
				rt := eviction.NewRuntime(m)
				study, err := rt.Study(background, []*eviction.Configured{policy(b, m, name)}, eviction.Prompt{Tokens: modeltest.Tokens(m, 3, tokens), MaxNew: steps}, []int{budget}, runner.GenerateOptions{MaxNew: 2})
				if err != nil {
					b.Fatal(err)
				}
				batch, err := runner.New(m).NewBatch(sessions)
				if err != nil {
					b.Fatal(err)
				}
				opt := runner.GenerateOptions{MaxNew: steps + 1, IgnoreEnd: true}
				times := make(map[bool][]float64)
				decode := func(together bool) {
					var all []*eviction.Session
					for range sessions {
						s, err := study.Session(study.Choices[0])
						if err != nil {
							b.Fatal(err)
						}
						all = append(all, s)
					}
					start := time.Now()
					for _, s := range all {
						if together {
							_, err = s.Join(batch, opt)
						} else {
							_, _, err = s.Generate(background, opt)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
					if err := batch.Run(background); err != nil {
						b.Fatal(err)
					}
					times[together] = append(times[together], time.Since(start).Seconds())
				}
				decode(true) // warms up
				decode(false)
				clear(times)
				for b.Loop() {
					decode(true)
					decode(false)
				}
				rate := func(together bool) float64 {
					slices.Sort(times[together])
					return sessions * steps / times[together][len(times[together])/2]
				}
				b.ReportMetric(rate(true), "tokens/s")
				b.ReportMetric(rate(false), "tokens/s-alone")
				b.ReportMetric(rate(true)/rate(false), "x-alone")
			})
		}
	}
}
