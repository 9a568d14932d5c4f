package eviction_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

var background = context.Background()

// policy makes a policy with options given as policy.option=value; a learned one
// gets a fake adapter, one that drafts the model's first layer, and one that needs a
// pattern a random one.
func policy(t testing.TB, m *model.Model, name string, set ...string) *eviction.Configured {
	t.Helper()
	overrides, err := eviction.ParseOverrides(set)
	if err != nil {
		t.Fatal(err)
	}
	needs, err := eviction.NeedsOf(name, overrides)
	if err != nil {
		t.Fatal(err)
	}
	var r eviction.Resources
	if needs.Adapter != "" {
		r.Adapter = fakeOfKind(m, needs.Adapter, 9)
	}
	if needs.ScorerAdapter != "" {
		r.Scorer = fakeOfKind(m, needs.ScorerAdapter, 10)
	}
	if needs.Draft {
		if r.Draft, err = m.Cut(1); err != nil {
			t.Fatal(err)
		}
	}
	if needs.Pattern {
		r.Pattern = randomPattern(m, 5)
	}
	p, err := eviction.NewWith(name, policySeed, overrides, r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// policySeed is the seed of the policies that draw.
const policySeed = 3

// option reads the settings of a policy.
func option(p *eviction.Configured) func(string) float64 {
	values := p.Settings.Values()
	return func(name string) float64 {
		v, ok := values[name]
		if !ok {
			panic(p.Name + " has no option " + name)
		}
		return v
	}
}

// draw settles every option of a policy at random, within its range.
func draw(rng *rand.Rand, name string, p eviction.Policy) (set []string) {
	for _, o := range p.Options {
		if rng.IntN(3) == 0 {
			continue // the default
		}
		if o.Choices != nil {
			names := o.Choices()
			set = append(set, fmt.Sprintf("%s.%s=%s", name, o.Name, names[rng.IntN(len(names))]))
			continue
		}
		low := max(o.Min, -20)
		v := low + rng.Float64()*(min(o.Max, 20)-low)
		if o.Whole {
			v = math.Trunc(v)
		}
		if o.Odd && math.Mod(v, 2) == 0 {
			v++
		}
		set = append(set, fmt.Sprintf("%s.%s=%v", name, o.Name, v))
	}
	return set
}

func argmax(x []float64) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// TestEveryPolicyHasASecondImplementation: a policy is one file, and so is its
// test.
func TestEveryPolicyHasASecondImplementation(t *testing.T) {
	for _, name := range eviction.Policies.Names() {
		if _, ok := naivePolicies[name]; !ok {
			t.Errorf("%s has none in naivePolicies", name)
		}
	}
}

// shapes are the ways in which query heads share KV heads.
var shapes = []modeltest.Llama{
	{Heads: 3, KVHeads: 3, Layers: 2},
	{Heads: 4, KVHeads: 2, Layers: 3},
	{Heads: 6, KVHeads: 2, Layers: 1},
	{Heads: 4, KVHeads: 1, Layers: 4, Tied: true},
}

// keptDevices are the backends of the test below; one behind a build tag adds
// itself.
var keptDevices = []keptDevice{{"reference64", 1e-5}, {"cpu", 1e-3}}

type keptDevice struct {
	name string
	tol  float64 // relative difference of scores that may change places
}

// TestKeptSetsAgainstNaive holds every policy, with random options on random
// prompts and budgets, against its second implementation: what is kept, and the
// scores it is chosen by.
func TestKeptSetsAgainstNaive(t *testing.T) {
	shapes, longest := shapes, 300
	if testing.Short() { // every policy all the same
		shapes, longest = shapes[:2], 64
	}
	for _, device := range keptDevices {
		heads, close := 0, 0
		for i, shape := range shapes {
			shape.Seed = uint64(i + 1)
			m := shape.Open(t, device.name)
			exact := newNaive(m)
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			draws, shortest := 2, 1
			if device.name == "cuda" { // every launch takes its time
				if draws = 1; i > 0 {
					shortest = 4
				}
			}
			for _, n := range []int{1, 2, 3, 7 + rng.IntN(20), 64, 100 + rng.IntN(201)} {
				if n < shortest || n > longest {
					continue
				}
				c := naiveCase{naive: exact, tokens: modeltest.Tokens(m, uint64(n), n)}
				c.prompt = exact.run(exact.empty(), exact.embed(c.tokens), 0, nil)
				c.full = exact.empty().with(c.prompt)
				var policies []*eviction.Configured
				var sets [][]string
				for _, name := range eviction.Policies.Names() {
					info, _ := eviction.Policies.Lookup(name)
					for range draws {
						set := draw(rng, name, info)
						policies, sets = append(policies, policy(t, m, name, set...)), append(sets, set)
					}
				}
				budgets := []int{1, 1 + rng.IntN(n), 1 + rng.IntN(n), max(1, n-1), n, n + 3}
				study, err := eviction.NewRuntime(m).Study(background, policies, eviction.Prompt{Tokens: c.tokens}, budgets, runner.GenerateOptions{MaxNew: rng.IntN(6)})
				if err != nil {
					t.Fatal(err)
				}
				c.response = study.Response
				for k, plan := range study.Choices {
					naive := naivePolicies[plan.Configured.Name]
					if naive == nil {
						continue
					}
					c.budget, c.option, c.resources = plan.Budget, option(plan.Configured), plan.Configured.Settings.Resources
					c.text = plan.Configured.Settings.OptionText
					want := naivePlan{budgets: exact.uniform(n)} // within the budget all is kept
					if n > plan.Budget || naiveWithin[plan.Configured.Name] {
						want = naive(&c)
					}
					name := fmt.Sprintf("%s %d/%d n=%d/budget=%d: %s %v", device.name, shape.Heads, shape.KVHeads, n, plan.Budget, plan.Configured.Name, sets[k/len(budgets)])
					heads += m.Config.Layers * m.Config.KVHeads
					close += compareKept(t, name, plan, want, n, device.tol)
				}
			}
		}
		// Tolerance is for ties, not for the rule.
		if close*200 > heads {
			t.Errorf("%s: %d of %d heads differ by entries of almost equal score", device.name, close, heads)
		}
	}
}

// compareKept holds a plan against the second implementation's and returns the
// number of heads that differ only by entries of almost equal scores.
func compareKept(t *testing.T, name string, got *eviction.Choice, want naivePlan, n int, tol float64) (close int) {
	t.Helper()
	if len(got.Kept) != len(want.budgets) {
		t.Fatalf("%s: kept of %d layers, want %d", name, len(got.Kept), len(want.budgets))
	}
	for l := range got.Kept {
		if want.headBudgets != nil && n > got.Budget {
			close += compareLayer(t, fmt.Sprintf("%s: layer %d", name, l), got.Kept[l], want, l, n, tol)
			continue
		}
		for h, kept := range got.Kept[l] {
			if got.Scores != nil && want.scores != nil {
				from, to := want.sink, n-want.recent
				compare.Close(t, fmt.Sprintf("%s: layer %d head %d: scores", name, l, h), got.Scores[l][h][from:to], want.scores[l][h][from:to], tol, compare.Floor(1e-7))
			}
			keep := want.kept(l, h, n)
			if slices.Equal(kept, keep) {
				continue
			}
			close++
			if want.ties != nil && want.ties(l, h, kept, keep, tol) {
				continue
			}
			if len(kept) != len(keep) || want.scores == nil || !almost(want, l, h, kept, keep, tol) {
				t.Errorf("%s: layer %d head %d keeps %v, want %v", name, l, h, kept, keep)
			}
		}
	}
	return close
}

// compareLayer is compareKept for a layer whose heads compete with each other.
func compareLayer(t *testing.T, name string, got [][]int32, want naivePlan, l, n int, tol float64) (close int) {
	t.Helper()
	var extra, missing []float64
	for h := range got {
		keep := want.kept(l, h, n)
		if slices.Equal(got[h], keep) {
			continue
		}
		close++
		if want.scores == nil {
			t.Errorf("%s head %d keeps %v, want %v", name, h, got[h], keep)
			continue
		}
		for j := range int32(n) {
			switch in, should := slices.Contains(got[h], j), slices.Contains(keep, j); {
			case in && !should:
				extra = append(extra, want.scores[l][h][j])
			case should && !in:
				missing = append(missing, want.scores[l][h][j])
			}
		}
	}
	// A floor and the pool may each end among equals.
	slices.Sort(extra)
	slices.Sort(missing)
	wrong := len(extra) != len(missing)
	for i := 0; i < len(extra) && !wrong; i++ {
		wrong = want.apart(extra[i], missing[i], tol)
	}
	if wrong {
		t.Errorf("%s keeps %v: scores %v instead of %v", name, got, extra, missing)
	}
	return close
}

// almost tells whether two sets differ only by entries whose scores are almost,
// but not exactly, equal.
func almost(p naivePlan, l, h int, a, b []int32, tol float64) bool {
	without := func(x, y []int32) (out []float64) {
		for _, j := range x {
			if !slices.Contains(y, j) {
				out = append(out, p.scores[l][h][j])
			}
		}
		return out
	}
	for _, x := range without(a, b) {
		for _, y := range without(b, a) {
			if p.apart(x, y, tol) {
				return false
			}
		}
	}
	return true
}

// TestResponsesAgainstNaive: what policies that only evict the prompt generate is
// what the second forward pass generates from the pairs that they keep.
func TestResponsesAgainstNaive(t *testing.T) {
	for i, shape := range shapes {
		shape.Seed = uint64(i + 1)
		m := shape.Open(t, "reference64")
		exact := newNaive(m)
		const n, budget, length = 40, 14, 12
		tokens := modeltest.Tokens(m, 8, n)
		prompt := exact.run(exact.empty(), exact.embed(tokens), 0, nil)
		full := exact.empty().with(prompt)
		for _, name := range eviction.Policies.Names() {
			p := policy(t, m, name)
			evicts := planOf(m, p).Decode != nil
			sparse := planOf(m, p).Sparse != nil
			if evicts || sparse {
				continue // TestDecodingAgainstNaive
			}
			if planOf(m, p).Stay != nil {
				continue // TestRowsStay
			}
			s, err := eviction.NewRuntime(m).Prefill(background, p, eviction.Prompt{Tokens: tokens, MaxNew: mostNew(m, p), Budget: budget})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: length, IgnoreEnd: true})
			if err != nil {
				t.Fatal(err)
			}
			want, _ := exact.greedy(full.only(s.Kept()), prompt.logits[n-1], n, length)
			if !slices.Equal(got, want) {
				t.Errorf("%d/%d %s: response %v, want %v", shape.Heads, shape.KVHeads, name, got, want)
			}
		}
	}
}
