package eviction_test

import (
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
)

func init() {
	// The mean attention of the response's rows y₁…y_m at n…n+m−1; the end token for
	// a response without any.
	naivePolicies["oracle"] = func(c *naiveCase) naivePlan {
		response := c.response
		if len(response) == 0 {
			response = c.c.EOS[:1]
		}
		p := c.probe(c.embed(response), nil)
		return naivePlan{scores: c.meanScores(p.attention, 0, len(response), c.n()), budgets: c.uniform(c.budget)}
	}
}

// TestOracleFollowsTheResponse: a response that is given replaces the model's own, which
// without any has as many tokens as the response to come may have.
func TestOracleFollowsTheResponse(t *testing.T) {
	m := modeltest.Llama{Layers: 2}.Open(t, "reference64")
	exact := newNaive(m)
	p, rt := policy(t, m, "oracle"), eviction.NewRuntime(m)
	const n, budget, most = 40, 9, 100
	c := naiveCase{naive: exact, tokens: modeltest.Tokens(m, 1, n), budget: budget}
	c.prompt = exact.run(exact.empty(), exact.embed(c.tokens), 0, nil)
	c.full = exact.empty().with(c.prompt)
	own, _ := exact.greedy(c.full, c.prompt.logits[n-1], n, most)
	if end := slices.Index(own, m.Config.EOS[0]); end >= 0 {
		own = own[:end]
	}
	for name, response := range map[string][]int32{"own": nil, "given": modeltest.Tokens(m, 2, 7), "empty": {}} {
		s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: c.tokens, MaxNew: most, Budget: budget, Response: response})
		if err != nil {
			t.Fatal(err)
		}
		if c.response = response; response == nil {
			c.response = own
		}
		want := naivePolicies["oracle"](&c)
		for l := range s.Kept() {
			for h, kept := range s.Kept()[l] {
				if keep := want.kept(l, h, n); !slices.Equal(kept, keep) {
					t.Errorf("%s response: layer %d head %d keeps %v, want %v", name, l, h, kept, keep)
				}
			}
		}
	}
}

// TestOracleWithoutALength: where nobody says how long the response may be, it goes on to
// its end token, or to the end of the context.
func TestOracleWithoutALength(t *testing.T) {
	for _, ends := range []bool{false, true} {
		m := modeltest.Llama{Layers: 2, MaxPositions: 200}.Open(t, "cpu")
		tokens, rt := modeltest.Tokens(m, 1, 40), eviction.NewRuntime(m)
		m.Config.EOS = nil
		want := generate(t, prefill(t, m, policy(t, m, "full"), tokens, 40), 161)
		if ends {
			at := 90
			for slices.Contains(want[:at], want[at]) {
				at++
			}
			m.Config.EOS, want = want[at:at+1], want[:at]
		}
		if len(want) < 65 {
			t.Fatalf("a response of %d tokens", len(want))
		}
		p := policy(t, m, "oracle")
		own, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: 9})
		if err != nil {
			t.Fatal(err)
		}
		given, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: 9, Response: want})
		if err != nil {
			t.Fatal(err)
		}
		if !sameScores(own.Scores(), given.Scores()) {
			t.Errorf("ends=%v: the scores are not those of all %d tokens of the response", ends, len(want))
		}
	}
}
