package eviction_test

import (
	"slices"
	"testing"
	"time"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// BenchmarkDecode decodes 64 tokens after a prompt of 2,048 under every policy at a
// budget of 64, in turn with the full cache, on a model of the built-in one's shape:
// x-full is how many times as fast as with the full cache, medians of both in one
// run.
func BenchmarkDecode(b *testing.B) {
	m := modeltest.Llama{Hidden: 128, Intermediate: 320, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, Vocab: 384}.Open(b, "cpu")
	const tokens, budget, steps = 2048, 64, 64
	prompt := modeltest.Tokens(m, 3, tokens)
	full := policy(b, m, "full")
	for _, name := range eviction.Policies.Names() {
		b.Run("policy="+name+"/tokens=2048/budget=64", func(b *testing.B) {
			rt := eviction.NewRuntime(m)
			study, err := rt.Study(background, []*eviction.Configured{full, policy(b, m, name)}, eviction.Prompt{Tokens: prompt, MaxNew: steps}, []int{budget}, runner.GenerateOptions{MaxNew: 8})
			if err != nil {
				b.Fatal(err)
			}
			decode := func(plan *eviction.Choice) (float64, eviction.Traffic) {
				s, err := study.Session(plan)
				if err != nil {
					b.Fatal(err)
				}
				start := time.Now()
				if _, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: steps + 1, IgnoreEnd: true}); err != nil {
					b.Fatal(err)
				}
				return time.Since(start).Seconds(), s.Traffic
			}
			decode(study.Choices[0]) // warms up
			var times [2][]float64
			var read [2]eviction.Traffic
			for b.Loop() {
				for i, plan := range study.Choices {
					t, traffic := decode(plan)
					times[i], read[i] = append(times[i], t), traffic
				}
			}
			for i := range times {
				slices.Sort(times[i])
			}
			all, evicted := times[0][len(times[0])/2], times[1][len(times[1])/2]
			b.ReportMetric(all/evicted, "x-full")
			b.ReportMetric(steps/evicted, "tokens/s")
			b.ReportMetric(read[1].PerStep(), "B-read/step")
			b.ReportMetric(read[0].PerStep()/read[1].PerStep(), "x-less-read")
		})
	}
}
