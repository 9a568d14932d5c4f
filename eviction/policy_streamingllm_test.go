package eviction_test

import (
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

func init() {
	// The first entries, and the most recent for the rest of the budget.
	naivePolicies["streamingllm"] = func(c *naiveCase) naivePlan {
		sink := min(c.int("sink"), c.budget)
		return naivePlan{budgets: c.uniform(c.budget), sink: sink, recent: c.budget - sink}
	}
}

// TestStreamingDecoding: at every step the cache holds the first four positions
// and the last ones.
func TestStreamingDecoding(t *testing.T) {
	m := modeltest.Llama{Layers: 2}.Open(t, "cpu")
	for _, c := range []struct{ n, budget int }{{50, 12}, {3, 12}, {50, 3}, {50, 4}, {12, 12}} {
		s, err := eviction.NewRuntime(m).Prefill(background, policy(t, m, "streamingllm"), eviction.Prompt{Tokens: modeltest.Tokens(m, 3, c.n), Budget: c.budget})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.Generate(background, runner.GenerateOptions{MaxNew: 40, IgnoreEnd: true, AfterStep: func() error {
			end := s.Cache.Next()
			var want []int32
			sink := min(4, c.budget)
			for p := range end {
				if int(end) <= c.budget || int(p) < sink || int(p) >= int(end)-(c.budget-sink) {
					want = append(want, p)
				}
			}
			for l := range s.Cache.Layers() {
				for h := range s.Cache.KVHeads() {
					if got := s.Cache.Positions(l, h); !slices.Equal(got, want) {
						t.Fatalf("n=%d/budget=%d at %d: layer %d head %d holds %v, want %v", c.n, c.budget, end, l, h, got, want)
					}
				}
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStreamingOfThePromptAlone: the response is added to what is left of the prompt.
func TestStreamingOfThePromptAlone(t *testing.T) {
	m := modeltest.Llama{Layers: 2}.Open(t, "cpu")
	s := prefill(t, m, policy(t, m, "streamingllm", "streamingllm.decode=0", "streamingllm.sink=2"), modeltest.Tokens(m, 3, 50), 12)
	generate(t, s, 9)
	want := []int32{0, 1, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57}
	for l := range s.Cache.Layers() {
		for h := range s.Cache.KVHeads() {
			if got := s.Cache.Positions(l, h); !slices.Equal(got, want) {
				t.Errorf("layer %d head %d holds %v, want %v", l, h, got, want)
			}
		}
	}
}
