package engine

import (
	"slices"
	"testing"
	"time"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// BenchmarkPromptBesideAnswers: a prompt of 4,096 tokens comes while seven answers are decoded. It reports the longest
// time between two of their tokens, and how long the prompt takes to its first one, by the units of the prompt that
// run between two steps; "whole" runs it at once.
func BenchmarkPromptBesideAnswers(b *testing.B) {
	m := modeltest.Llama{Hidden: 576, Layers: 12, Heads: 9, KVHeads: 3, HeadDim: 64, Intermediate: 1536, Vocab: 4096, MaxPositions: 8192, Seed: 1}.Open(b, "cpu")
	snapkv, err := eviction.New("snapkv", 1, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, units := range []int{0, 1, 4} {
		b.Run(map[int]string{0: "whole", 1: "units=1", 4: "units=4"}[units], func(b *testing.B) {
			var gaps, firsts []time.Duration
			for range b.N {
				rt := eviction.NewRuntime(m)
				e, err := New(rt, 8)
				if err != nil {
					b.Fatal(err)
				}
				submit := func(prompt []int32) *Answer {
					s, err := rt.NewSession(snapkv, eviction.Pairs(128))
					if err != nil {
						b.Fatal(err)
					}
					a, err := e.Submit(Request{Session: s, Prompt: prompt, Generate: runner.GenerateOptions{MaxNew: 4096, IgnoreEnd: true}})
					if err != nil {
						b.Fatal(err)
					}
					return a
				}
				for i := range 7 {
					submit(modeltest.Tokens(m, uint64(i), 64))
				}
				step := func() {
					if _, err := e.Step(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				for range 16 {
					step()
				}
				e.More = upTo(units)
				long := submit(modeltest.Tokens(m, 9, 4096))
				begin := time.Now()
				var gap time.Duration
				for len(long.Tokens()) == 0 {
					before := time.Now()
					step()
					gap = max(gap, time.Since(before))
				}
				gaps, firsts = append(gaps, gap), append(firsts, time.Since(begin))
			}
			slices.Sort(gaps)
			slices.Sort(firsts)
			b.ReportMetric(float64(gaps[len(gaps)/2].Microseconds())/1000, "gap-ms")
			b.ReportMetric(float64(firsts[len(firsts)/2].Microseconds())/1000, "first-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
