package eviction_test

import (
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestRewind: a session whose conversation was rewritten goes on as one that has run the new
// one alone, under every policy; pairs stay only where all of them are there.
func TestRewind(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		const n, length, same = 40, 6, 25
		for name, budget := range map[string]int{"evicted": 14, "all kept": 400} {
			s := prefill(t, m, p, modeltest.Tokens(m, 4, n), budget)
			generate(t, s, length)
			whole := slices.Concat(modeltest.Tokens(m, 4, n)[:same], modeltest.Tokens(m, 7, 30))
			plan := planOf(m, p)
			gathers := p.Second != nil || plan.Decode != nil || plan.Sparse != nil
			want := 0
			if !gathers && (budget > n || p.Name == "full") {
				want = same
			}
			kept, err := s.Rewind(whole)
			if err != nil || kept != want {
				t.Fatalf("%s: %d tokens stand, %v, want %d", name, kept, err, want)
			}
			if err := s.Turn(background, eviction.Prompt{Tokens: whole[kept:], MaxNew: mostNew(m, p)}); err != nil {
				t.Fatal(err)
			}
			alone := prefill(t, m, p, whole, budget)
			if kept == 0 && !samePairs(s.Cache, alone.Cache) {
				t.Errorf("%s: other pairs than those of a new session", name)
			}
			compare.Close(t, name+": logits", s.Logits(), alone.Logits(), 1e-3)
			if got, want := generate(t, s, length), generate(t, alone, length); !slices.Equal(got, want) {
				t.Errorf("%s: answers %v, want %v", name, got, want)
			}
		}
	})
}

// TestRewindRunsAToken: a conversation that the session has run to its last token still has
// one to run, whose logits the answer needs.
func TestRewindRunsAToken(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	tokens := modeltest.Tokens(m, 4, 20)
	s := prefill(t, m, policy(t, m, "full"), tokens, 64)
	if kept, err := s.Rewind(tokens); err != nil || kept != 19 {
		t.Errorf("%d tokens stand, %v, want 19", kept, err)
	}
	if err := s.Turn(background, eviction.Prompt{Tokens: tokens[19:]}); err != nil || s.Cache.Next() != 20 {
		t.Errorf("ends at %d, %v", s.Cache.Next(), err)
	}
}
