package engine

import (
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestBitsOfSteps: of a model in bf16 an engine of any number of rows answers with the bits of a session by itself, as
// "evict run" does, however many of them are taken.
func TestBitsOfSteps(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	prompt, answer := modeltest.Tokens(m, 1, 120), modeltest.Tokens(m, 2, 24)
	for _, p := range policies(t, "full", "snapkv", "rocketkv-mt") {
		alone, err := eviction.NewRuntime(m).Prefill(t.Context(), p, eviction.Prompt{Tokens: prompt, Budget: 32})
		if err != nil {
			t.Fatal(err)
		}
		want, err := alone.Force(t.Context(), answer)
		if err != nil {
			t.Fatal(err)
		}
		said := func(rows, beside int) []float64 {
			rt := eviction.NewRuntime(m)
			e, err := New(rt, rows)
			if err != nil {
				t.Fatal(err)
			}
			var first *Answer
			for i := range 1 + beside {
				s, err := rt.NewSession(p, eviction.Pairs(32))
				if err != nil {
					t.Fatal(err)
				}
				tokens := prompt
				if i > 0 {
					tokens = modeltest.Tokens(m, uint64(2+i), 60+i)
				}
				a, err := e.Submit(Request{Session: s, Prompt: tokens, Generate: runner.GenerateOptions{Forced: answer}})
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					first = a
				}
			}
			for e.Len() > 0 {
				if _, err := e.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if first.Err() != nil {
				t.Fatal(first.Err())
			}
			return first.LogProbs()
		}
		for _, c := range [][2]int{{1, 0}, {2, 0}, {2, 1}, {3, 0}, {4, 3}, {8, 0}, {16, 0}, {16, 11}} {
			if got := said(c[0], c[1]); !slices.Equal(got, want) {
				t.Errorf("%s: an engine of %d rows with %d answers has other bits than a session by itself", p.Name, c[0], 1+c[1])
			}
		}
	}
}
