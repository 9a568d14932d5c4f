package eviction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
)

func init() {
	// A greedy draft on what snapkv keeps; its queries, with its own keys, score the
	// full cache, of which then nothing is kept but for its score.
	naivePolicies["laq"] = func(c *naiveCase) naivePlan {
		first := c.first(snapkvPlan(c))
		attention, n := c.secondLook(first)
		scores := c.grouped(func(l, h int) []float64 { return rows(attention[l][h]).mean(0, n, c.n()) })
		for l := range scores {
			for h, s := range scores[l] {
				scores[l][h] = pooled(s, c.int("kernel"))
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget)}
	}
}

// secondLook is the attention that the rows of a greedy draft, decoded on what first
// keeps, pay to the full cache, [layer][head][row], and the number of rows: the draft's
// first token and what follows up to an end token.
func (c *naiveCase) secondLook(first naivePlan) ([][][][]float64, int) {
	kept := make([][][]int32, c.c.Layers)
	for l := range kept {
		for h := range c.c.KVHeads {
			kept[l] = append(kept[l], first.kept(l, h, c.n()))
		}
	}
	rows := min(c.int("lookahead"), c.c.MaxPositions-c.n())
	tokens, steps := c.greedy(c.full.only(kept), c.prompt.logits[c.n()-1], c.n(), rows+1)
	if end := slices.IndexFunc(tokens[1:], func(id int32) bool { return slices.Contains(c.c.EOS, id) }); end >= 0 {
		steps = steps[:end+1]
	}
	attention := make([][][][]float64, c.c.Layers)
	for l := range attention {
		attention[l] = make([][][]float64, c.c.Heads)
		own := make([][]pair, c.c.KVHeads)
		for _, step := range steps {
			for g := range own {
				own[g] = append(own[g], step.own[l][g][0])
			}
			for h := range attention[l] {
				g := h / c.c.Group()
				visible := append(append([]pair(nil), c.full[l][g]...), own[g]...)
				attention[l][h] = append(attention[l][h], softmax(step.queries[l][h][0], visible))
			}
		}
	}
	return attention, len(steps)
}

// TestDraftsEnd: a draft has as many rows as it has tokens before its end token, also
// where the model has several, and at least the first; and as many as the paper of LookaheadKV
// lets it have where it does not end. Every number of rows scores differently.
func TestDraftsEnd(t *testing.T) {
	for _, name := range []string{"laq", "laq++"} {
		m := modeltest.Llama{Layers: 2, Seed: 4}.Open(t, "reference64")
		m.Config.EOS = []int32{39} // which is never written here
		tokens := modeltest.Tokens(m, 1, 90)
		const budget = 20
		scores := func(set ...string) [][][]float32 {
			return prefill(t, m, policy(t, m, name, set...), tokens, budget).Scores()
		}
		draft := draftOf(t, m, tokens, budget, 40)
		if !sameScores(scores(), scores(name+".lookahead=32")) || sameScores(scores(), scores(name+".lookahead=31")) {
			t.Errorf("%s: the default is no draft of 32 tokens", name)
		}
		for _, end := range []int{0, 1, 2, 9} {
			rows := 1 + slices.Index(draft[1:], draft[end]) // the first token is run whatever it is
			if rows == 0 {
				rows = 32
			}
			m.Config.EOS = []int32{39}
			want := scores(fmt.Sprintf("%s.lookahead=%d", name, rows))
			m.Config.EOS = []int32{39, draft[end]}
			if got := scores(); !sameScores(got, want) {
				t.Errorf("%s: a draft that ends after %d tokens has other rows", name, rows)
			}
		}
	}
}

// draftOf is the greedy response on what snapkv keeps.
func draftOf(t *testing.T, m *model.Model, tokens []int32, budget, n int) []int32 {
	return generate(t, prefill(t, m, policy(t, m, "snapkv"), tokens, budget), n)
}

func sameScores(a, b [][][]float32) bool {
	return slices.EqualFunc(a, b, func(x, y [][]float32) bool { return slices.EqualFunc(x, y, slices.Equal) })
}

// TestSecondLooksWindow: laq keeps no window of the full cache, laq++ its last rows; the
// first look keeps snapkv's in both, also where another policy selects by their scores.
func TestSecondLooksWindow(t *testing.T) {
	m := modeltest.Llama{Layers: 4, Seed: 2}.Open(t, "cpu")
	const n, budget = 200, 64
	tokens := modeltest.Tokens(m, 1, n)
	for _, c := range []struct {
		name string
		want int // of the last rows, all that are kept in all heads
	}{{"laq", 0}, {"laq++", 8}, {"adakv laq", 0}, {"compose laq++", 8}} {
		name, set := c.name, []string(nil)
		if wrapper, scorer, ok := strings.Cut(c.name, " "); ok {
			name, set = wrapper, []string{wrapper + ".scorer=" + scorer}
		}
		p := policy(t, m, name, set...)
		s := prefill(t, m, p, tokens, budget)
		least := n
		for l := range s.Kept() {
			for _, kept := range s.Kept()[l] {
				rows := 0
				for rows < n && slices.Contains(kept, int32(n-1-rows)) {
					rows++
				}
				least = min(least, rows)
			}
		}
		if least < c.want || least >= c.want+8 {
			t.Errorf("%s keeps %d of the last rows in every head, want %d", c.name, least, c.want)
		}
		if recent := p.Method.Plan(eviction.Prompt{Budget: budget, Entries: n, Config: &m.Config}).Recent; recent != 32 {
			t.Errorf("%s: the draft is decoded on %d of the last rows, want 32", c.name, recent)
		}
	}
}
