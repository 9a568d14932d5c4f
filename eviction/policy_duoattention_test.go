package eviction_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// randomPattern has a number for every head, some of them alike.
func randomPattern(m *model.Model, seed uint64) *eviction.Pattern {
	rng := rand.New(rand.NewPCG(seed, 8))
	p := &eviction.Pattern{Sink: 4, Recent: 8}
	for range m.Config.Layers {
		var heads []float64
		for range m.Config.KVHeads {
			heads = append(heads, float64(rng.IntN(4))/4)
		}
		p.Heads = append(p.Heads, heads)
	}
	return p
}

func init() {
	// Heads become retrieval heads, the best first, as long as all heads together stay
	// within the budget's average; the others keep sinks and recent entries.
	naivePolicies["duoattention"] = func(c *naiveCase) naivePlan {
		p := naivePlan{budgets: c.uniform(c.budget), sink: c.int("sink"), recent: c.int("recent")}
		dense := min(c.int("dense"), c.c.Layers)
		heads := (c.c.Layers - dense) * c.c.KVHeads
		if c.budget < p.sink+p.recent {
			if c.budget <= 2*p.sink {
				p.sink = int(0.2 * float64(c.budget))
			}
			p.recent = c.budget - p.sink
		}
		p.headBudgets = make([][]int, c.c.Layers)
		total := 0
		for l := range p.headBudgets {
			p.headBudgets[l] = slices.Repeat([]int{p.sink + p.recent}, c.c.KVHeads)
			if l < dense {
				p.headBudgets[l] = slices.Repeat([]int{c.n()}, c.c.KVHeads)
			} else {
				total += c.c.KVHeads * (p.sink + p.recent)
			}
		}
		for c.budget >= c.int("sink")+c.int("recent") {
			bestL, bestH := -1, -1
			for l, layer := range c.resources.Pattern.Heads {
				for h, v := range layer {
					if p.headBudgets[l][h] < c.n() && (bestL < 0 || v > c.resources.Pattern.Heads[bestL][bestH]) {
						bestL, bestH = l, h
					}
				}
			}
			total += c.n() - p.sink - p.recent
			if bestL < 0 || total > heads*c.budget {
				break
			}
			p.headBudgets[bestL][bestH] = c.n()
		}
		return p
	}
}

// TestRetrievalHeads: shares worked out by hand, and the rule for small budgets of
// RocketKV, arXiv:2502.14051, app. A.3.
func TestRetrievalHeads(t *testing.T) {
	config := &model.Config{Layers: 2, KVHeads: 4}
	pattern := &eviction.Pattern{Heads: [][]float64{{.1, .9, .1, .2}, {.8, .3, .3, 0}}}
	p, err := eviction.NewWith("duoattention", 0, nil, eviction.Resources{Pattern: pattern})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		n, budget    int
		sink, recent int
		retrieval    []int // layer·4 + head
	}{
		{"8 heads of 1000, streaming ones of 640: 8·(730−640)/360 = 2", 1000, 730, 128, 512, []int{1, 4}},
		{"8·(775−640)/360 = 3, ties to the earlier head", 1000, 775, 128, 512, []int{1, 4, 5}},
		{"one entry less for all", 1000, 774, 128, 512, []int{1, 4}},
		{"640 streams everywhere", 1000, 640, 128, 512, nil},
		{"below 640", 1000, 639, 128, 511, nil},
		{"257: sink 128", 1000, 257, 128, 129, nil},
		{"256: sink 20%", 1000, 256, 51, 205, nil},
		{"1: no sink", 1000, 1, 0, 1, nil},
		{"everything fits", 700, 700, 128, 512, []int{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		prompt := eviction.Prompt{Entries: c.n, Budget: c.budget, Config: config}
		plan := p.Method.Plan(prompt)
		if plan.Sink != c.sink || plan.Recent != c.recent {
			t.Errorf("%s: streaming heads keep %d and %d, want %d and %d", c.name, plan.Sink, plan.Recent, c.sink, c.recent)
		}
		for l := range 2 {
			for h, got := range plan.Heads(l, c.budget, &eviction.Scores{Entries: make([]int, 4)}) {
				want := c.sink + c.recent
				if slices.Contains(c.retrieval, 4*l+h) {
					want = c.n
				}
				if got != want {
					t.Errorf("%s: layer %d head %d keeps %d, want %d", c.name, l, h, got, want)
				}
			}
		}
	}
}

// TestDuoDecoding: retrieval heads keep the response, too, the others stream on.
func TestDuoDecoding(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Seed: 5}.Open(t, "reference64")
	exact := newNaive(m)
	const n, budget, steps = 50, 20, 30
	tokens := modeltest.Tokens(m, 3, n)
	p := policy(t, m, "duoattention", "duoattention.sink=2", "duoattention.recent=6")
	s := prefill(t, m, p, tokens, budget)
	c := naiveCase{naive: exact, tokens: tokens, budget: budget, option: option(p), resources: p.Settings.Resources}
	plan := naivePolicies["duoattention"](&c)
	response := generate(t, s, steps+1)

	prompt := exact.run(exact.empty(), exact.embed(tokens), 0, nil)
	kept, pos := make([][][]int32, 2), make([][][]int32, 2)
	retrieving := 0
	for l := range kept {
		for h := range m.Config.KVHeads {
			kept[l] = append(kept[l], plan.kept(l, h, n))
			pos[l] = append(pos[l], plan.kept(l, h, n))
			if plan.headBudgets[l][h] == n {
				retrieving++
			}
		}
	}
	if retrieving != 1 { // 4·(20−8)/(50−8) = 1.1
		t.Fatalf("%d retrieval heads", retrieving)
	}
	cache := exact.empty().with(prompt).only(kept)
	for i, id := range response[:steps] {
		row := exact.run(cache, exact.embed([]int32{id}), n+i, nil)
		cache = cache.with(row)
		for l := range cache {
			for h := range cache[l] {
				pos[l][h] = append(pos[l][h], int32(n+i))
				if plan.headBudgets[l][h] < n && len(cache[l][h]) > 8 {
					cache[l][h] = slices.Delete(cache[l][h], 2, 3)
					pos[l][h] = slices.Delete(pos[l][h], 2, 3)
				}
			}
		}
		if best := argmax(row.logits[0]); best != response[i+1] {
			t.Fatalf("token %d of the response is %d, want %d", i+1, response[i+1], best)
		}
	}
	for l := range pos {
		for h, want := range pos[l] {
			if got := s.Cache.Positions(l, h); !slices.Equal(got, want) {
				t.Errorf("layer %d head %d: positions %v, want %v", l, h, got, want)
			}
		}
	}
}

// TestPatternsOfAnotherShape are refused before anything runs.
func TestPatternsOfAnotherShape(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	for want, heads := range map[string][][]float64{
		"pattern: 1 layers of 2 KV heads, want 2 of 2 as tiny has": {{0, 1}},
		"pattern: 2 layers of 3 KV heads, want 2 of 2 as tiny has": {{0, 1, 1}, {0, 1, 1}},
	} {
		p, err := eviction.NewWith("duoattention", 0, nil, eviction.Resources{Pattern: &eviction.Pattern{Heads: heads}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Fits(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := eviction.NewRuntime(m).Prefill(background, p, eviction.Prompt{Tokens: []int32{1, 2, 3}, Budget: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("prefill: %v", err)
		}
	}
}

// TestResourcesThatAPolicyDoesNotTake are refused.
func TestResourcesThatAPolicyDoesNotTake(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	for _, c := range []struct {
		policy string
		r      eviction.Resources
		want   string
	}{
		{"snapkv", eviction.Resources{Draft: m}, "policy snapkv: takes no draft model, got tiny"},
		{"speckv", eviction.Resources{Pattern: &eviction.Pattern{}}, "policy speckv: takes no pattern of retrieval heads, got one"},
		{"duoattention", eviction.Resources{}, "policy duoattention: needs a pattern of retrieval heads, got none"},
		{"duoattention", eviction.Resources{Pattern: &eviction.Pattern{}, Draft: m}, "policy duoattention: takes no draft model, got tiny"},
	} {
		if _, err := eviction.NewWith(c.policy, 0, nil, c.r); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %q", c.policy, err, c.want)
		}
	}
}
