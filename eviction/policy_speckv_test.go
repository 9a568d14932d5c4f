package eviction_test

import (
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

func init() {
	// The draft model, here the first layer with the head, answers greedily up to its
	// end token; the largest probability that any row of the window or of the draft
	// gives an entry, pooled; the window is kept.
	naivePolicies["speckv"] = func(c *naiveCase) naivePlan {
		own := *c.naive
		config := *c.c
		config.Layers = c.resources.Draft.Config.Layers
		own.c, own.layers = &config, own.layers[:config.Layers]
		prompt := own.run(own.empty(), own.embed(c.tokens), 0, nil)
		draft, _ := own.greedy(own.empty().with(prompt), prompt.logits[c.n()-1], c.n(), min(c.int("tokens"), config.MaxPositions-c.n()+1))
		if end := slices.Index(draft, c.c.EOS[0]); end >= 0 {
			draft = draft[:end]
		}
		look := c.probe(c.embed(draft), nil)
		scores := c.grouped(func(l, h int) []float64 {
			s := rows(c.prompt.attention[l][h]).most(c.n()-c.window(), c.n(), c.n())
			for r := range draft {
				for j := range s {
					s[j] = max(s[j], look.attention[l][h][r][j])
				}
			}
			return s
		})
		c.poolBefore(scores, c.window())
		return naivePlan{scores: scores, budgets: c.uniform(c.budget), recent: c.window()}
	}
}

// TestOwnDraft: without a draft model the model drafts for itself, as a cut with all
// its layers does, and a longer draft than the context has room for is cut short.
func TestOwnDraft(t *testing.T) {
	m := modeltest.Llama{Layers: 3, MaxPositions: 60, Seed: 4}.Open(t, "cpu")
	whole, err := m.Cut(3)
	if err != nil {
		t.Fatal(err)
	}
	first, err := m.Cut(1)
	if err != nil {
		t.Fatal(err)
	}
	rt := eviction.NewRuntime(m)
	tokens := modeltest.Tokens(m, 3, 50)
	var kept [][][][]int32
	for _, r := range []eviction.Resources{{}, {Draft: m}, {Draft: whole}, {Draft: first}} {
		p, err := eviction.NewWith("speckv", 0, nil, r)
		if err != nil {
			t.Fatal(err)
		}
		s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: 16})
		if err != nil {
			t.Fatal(err)
		}
		if r.Draft != first && s.PeakBytes < s.FullBytes {
			t.Errorf("PeakBytes %d, the draft's own cache has %d", s.PeakBytes, s.FullBytes)
		}
		kept = append(kept, s.Kept())
	}
	if !sameKept(kept[0], kept[1]) || !sameKept(kept[0], kept[2]) {
		t.Errorf("the model's own drafts keep %v, %v, %v", kept[0], kept[1], kept[2])
	}
	if sameKept(kept[0], kept[3]) {
		t.Errorf("another draft keeps the same: the test cannot tell them apart")
	}
}

// TestDraftOfAnotherVocabulary is refused before anything runs.
func TestDraftOfAnotherVocabulary(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	p, err := eviction.NewWith("speckv", 0, nil, eviction.Resources{Draft: modeltest.Llama{Vocab: 48}.Open(t, "cpu")})
	if err != nil {
		t.Fatal(err)
	}
	const want = "policy speckv: draft model tiny: vocabulary of 48 tokens, want 40 as tiny has"
	if err := p.Fits(m); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	rt := eviction.NewRuntime(m)
	if _, err := rt.Prefill(background, p, eviction.Prompt{Tokens: []int32{1, 2, 3}, Budget: 1}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("prefill: %v", err)
	}
	if _, err := rt.Study(background, []*eviction.Configured{p}, eviction.Prompt{Tokens: []int32{1, 2, 3}}, []int{1}, runner.GenerateOptions{MaxNew: 4}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("study: %v", err)
	}
	for _, layers := range []int{0, 3, -1} {
		if _, err := m.Cut(layers); err == nil || !strings.Contains(err.Error(), "want 1 to 2") {
			t.Errorf("cut to %d layers: %v", layers, err)
		}
	}
}

// TestDraftBeyondItsContext: the draft model has to hold the prompt.
func TestDraftBeyondItsContext(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	p, err := eviction.NewWith("speckv", 0, nil, eviction.Resources{Draft: modeltest.Llama{MaxPositions: 20}.Open(t, "cpu")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eviction.NewRuntime(m).Prefill(background, p, eviction.Prompt{Tokens: make([]int32, 21), Budget: 5}); err == nil || !strings.Contains(err.Error(), "draft by tiny: prefill: 21 tokens at position 0, want at most 20") {
		t.Error(err)
	}
}
