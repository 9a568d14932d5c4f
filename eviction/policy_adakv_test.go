package eviction_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
)

func init() {
	naivePolicies["adakv"] = func(c *naiveCase) naivePlan {
		return c.scoredBy(c.text("scorer"), c.shared)
	}
}

// scoredBy is the plan of another policy, with its default options, selected in
// the way of allocate, also where that policy selects a first time.
func (c *naiveCase) scoredBy(scorer string, allocate func(naivePlan) naivePlan) naivePlan {
	p, err := eviction.Policies.Lookup(scorer)
	if err != nil {
		panic(err)
	}
	inner := *c
	find := func(name string) eviction.Option {
		i := slices.IndexFunc(p.Options, func(o eviction.Option) bool { return o.Name == name })
		return p.Options[i]
	}
	inner.option = func(name string) float64 { return find(name).Start() }
	inner.text = func(name string) string { return find(name).FormatValue(find(name).Start()) }
	inner.stage = allocate
	if scorer == "random" {
		return allocate(inner.draws())
	}
	return allocate(naivePolicies[scorer](&inner))
}

// draws is what the policy random draws.
func (c *naiveCase) draws() naivePlan {
	p := naivePlan{budgets: c.uniform(c.budget), scores: make([][][]float64, c.c.Layers)}
	for l := range p.scores {
		for h := range c.c.KVHeads {
			rng := rand.New(rand.NewPCG(policySeed, uint64(l)<<32|uint64(h)))
			s := make([]float64, c.n())
			for j := range s {
				s[j] = float64(rng.Float32())
			}
			p.scores[l] = append(p.scores[l], s)
		}
	}
	return p
}

// shared gives the heads of every layer one pool: first everyone's protected
// entries and its best up to the floor, then one by one the best of what is left
// in any head. Where the floor is a mix, these budgets and equal ones are then weighed
// by 1−α and α, and given out anew, one by one to whom most is owed.
func (c *naiveCase) shared(p naivePlan) naivePlan {
	alpha, mix := c.option("alpha"), c.text("floor") == "mix"
	if mix {
		alpha = 0
	}
	p.headBudgets = make([][]int, c.c.Layers)
	for l := range p.headBudgets {
		budget := min(p.budgets[l], c.n())
		floor := min(budget, max(p.sink+p.recent, int(alpha*float64(budget))))
		p.headBudgets[l] = slices.Repeat([]int{floor}, c.c.KVHeads)
		for range (budget - floor) * c.c.KVHeads {
			best, top := -1, 0.0
			for h, has := range p.headBudgets[l] {
				order := p.order(l, h, c.n())
				if next := has - p.sink - p.recent; next < len(order) {
					if s := p.scores[l][h][order[next]]; best < 0 || s > top {
						best, top = h, s
					}
				}
			}
			p.headBudgets[l][best]++
		}
		if !mix {
			continue
		}
		owed, alpha := make([]float64, c.c.KVHeads), c.option("alpha")
		for h, has := range p.headBudgets[l] {
			owed[h] = float64(has) - alpha*float64(has) + alpha*float64(budget)
		}
		clear(p.headBudgets[l])
		for range budget * c.c.KVHeads {
			to := 0
			for h := range owed {
				if owed[h] > owed[to]+1e-9 {
					to = h
				}
			}
			p.headBudgets[l][to]++
			owed[to]--
		}
	}
	return p
}

// TestSharedPool: budgets worked out by hand. Two heads, B = 4, so a pool of 8.
func TestSharedPool(t *testing.T) {
	strong := []float32{9, 8, 7, 6, 5, 4, 3, 2, 1, 1}
	weak := []float32{.1, .2, .3, .4, .5, .4, .3, .2, .1, .1}
	for _, c := range []struct {
		name, alpha string
		scores      [][]float32
		want        []int
	}{
		{"no floor", "0", [][]float32{strong, weak}, []int{8, 0}},
		{"floor of 2", "0.5", [][]float32{strong, weak}, []int{6, 2}},
		{"all floor", "1", [][]float32{strong, weak}, []int{4, 4}},
		{"the default floor of 0.8 is none", "0.2", [][]float32{weak, strong}, []int{0, 8}},
		{"ties go to the lower head", "0.25", [][]float32{weak, weak}, []int{5, 3}}, // .5 .4 .4 of both, .3 .3 of the first
		{"all alike", "0.25", [][]float32{make([]float32, 10), make([]float32, 10)}, []int{7, 1}},
		// B* = 8, 0: 0.75·8 + 0.25·4 and 0.75·0 + 0.25·4.
		{"mixed", "0.25 mix", [][]float32{strong, weak}, []int{7, 1}},
		{"mixed: the default", "0.2 mix", [][]float32{weak, strong}, []int{1, 7}},                   // 0.8, 7.2
		{"mixed: halves go to the lower head", "0.125 mix", [][]float32{weak, strong}, []int{1, 7}}, // 0.5, 7.5
		{"mixed: without a floor", "0 mix", [][]float32{strong, weak}, []int{8, 0}},
		{"mixed: all alike", "1 mix", [][]float32{strong, weak}, []int{4, 4}},
	} {
		alpha, floor, ok := strings.Cut(c.alpha, " ")
		if !ok {
			floor = "least"
		}
		overrides, err := eviction.ParseOverrides([]string{"adakv.alpha=" + alpha, "adakv.floor=" + floor, "adakv.scorer=knorm"})
		if err != nil {
			t.Fatal(err)
		}
		p, err := eviction.New("adakv", 0, overrides, nil)
		if err != nil {
			t.Fatal(err)
		}
		scores := cpuScores(t, len(c.scores[0]), len(c.scores[1]))
		scores.FromHost(func(dst [][]float32) {
			for h := range dst {
				copy(dst[h], c.scores[h])
			}
		})
		got := p.Method.Plan(eviction.Prompt{Entries: 10, Budget: 4, Config: &model.Config{Layers: 1}}).Heads(0, 4, scores)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestScorersKeepTheirOptions: the options of the policy that scores are set under
// its own name, and its adapter is asked for.
func TestScorersKeepTheirOptions(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	tokens := modeltest.Tokens(m, 1, 60)
	kept := func(set ...string) [][][]int32 {
		return prefill(t, m, policy(t, m, "adakv", set...), tokens, 20).Kept()
	}
	plain := kept()
	if sameKept(plain, kept("snapkv.window=2")) {
		t.Error("snapkv.window has no effect on adakv")
	}
	if !sameKept(plain, kept("h2o.recent=0")) {
		t.Error("an option of another policy has one")
	}
	overrides, err := eviction.ParseOverrides([]string{"adakv.scorer=lookaheadkv"})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		overrides eviction.Overrides
		adapter   model.Adapter
		want      string
	}{
		"none for a learned scorer":  {overrides, nil, `policy adakv: needs an adapter of kind "lookaheadkv", got none`},
		"another kind":               {overrides, newFakeAdapter(m, "judgeq", 3, 1), `policy adakv: adapter of kind "judgeq", want "lookaheadkv"`},
		"one for an untaught scorer": {nil, newFakeAdapter(m, "judgeq", 3, 1), `policy adakv: takes no adapter, got one of kind "judgeq"`},
	} {
		if _, err := eviction.New("adakv", 0, c.overrides, c.adapter); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	if _, err := eviction.ParseOverrides([]string{"adakv.scorer=streamingllm"}); err == nil || !strings.Contains(err.Error(), "want one of: dapq, expectedattention, h2o, judgeq") {
		t.Errorf("a policy without scores: %v", err)
	}
}

// TestHeadsWithNothing: without a floor a head may lose everything; its queries then
// see the response alone.
func TestHeadsWithNothing(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Seed: 6}.Open(t, "reference64")
	exact := newNaive(m)
	tokens := modeltest.Tokens(m, 1, 40)
	prompt := exact.run(exact.empty(), exact.embed(tokens), 0, nil)
	full := exact.empty().with(prompt)
	empty := 0
	for budget := 1; budget < 4; budget++ {
		s := prefill(t, m, policy(t, m, "adakv", "adakv.scorer=knorm", "adakv.alpha=0"), tokens, budget)
		for l := range s.Kept() {
			for h := range s.Kept()[l] {
				if len(s.Kept()[l][h]) == 0 {
					empty++
				}
			}
		}
		want, _ := exact.greedy(full.only(s.Kept()), prompt.logits[39], 40, 12)
		if got := generate(t, s, 12); !slices.Equal(got, want) {
			t.Errorf("budget %d: response %v, want %v", budget, got, want)
		}
	}
	if empty == 0 {
		t.Error("no head lost everything")
	}
}

// cpuScores have no values yet, for so many entries of every head.
func cpuScores(t *testing.T, entries ...int) *eviction.Scores {
	t.Helper()
	cpu, err := kernels.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	return &eviction.Scores{Entries: entries, Ops: cpu.Selector()}
}
