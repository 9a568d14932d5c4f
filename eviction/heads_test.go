package eviction_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// randomBudgets are learned budgets of a model, of two known shares.
func randomBudgets(m *model.Model, seed uint64) *eviction.HeadBudgets {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := &eviction.HeadBudgets{Label: "random", Samples: 1}
	for _, share := range []float64{0.1, 0.4} {
		at := eviction.HeadShares{Budget: share}
		for range m.Config.Layers {
			var heads []float64
			for range m.Config.KVHeads {
				x := rng.Float64()
				heads = append(heads, x*x*x)
			}
			at.Heads = append(at.Heads, heads)
		}
		b.Budgets = append(b.Budgets, at)
	}
	return b
}

// TestSharedBudgets: however heads share a budget, together they keep what equal ones would, each keeps the best of its scores,
// and one ranking is that of all of them.
func TestSharedBudgets(t *testing.T) {
	const n, budget = 120, 30
	for _, device := range []string{"reference64", "cpu"} {
		m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 8}.Open(t, device)
		tokens := modeltest.Tokens(m, 4, n)
		for _, name := range []string{"snapkv", "kvzip", "knorm", "lookaheadkv", "laq", "expectedattention", "kvzip+", "rocketkv", "triattention"} {
			for _, how := range []string{"layer", "global", "learned"} {
				t.Run(device+"/"+name+"/"+how, func(t *testing.T) {
					overrides, err := eviction.ParseOverrides([]string{name + ".head-budgets=" + how})
					if err != nil {
						t.Fatal(err)
					}
					r := policy(t, m, name).Settings.Resources
					r.HeadBudgets = randomBudgets(m, 2)
					p, err := eviction.NewWith(name, policySeed, overrides, r)
					if err != nil {
						t.Fatal(err)
					}
					s := prefill(t, m, p, tokens, budget)
					plan := p.Method.Plan(s.Prompt)
					budget := cmp.Or(plan.Budget, budget) // rocketkv's first stage keeps more
					recent := min(32, budget/4)
					total, equal := 0, true
					type entry struct {
						score float32
						kept  bool
					}
					var all []entry
					for l, heads := range s.Kept() {
						ofLayer := 0
						var inLayer []entry
						for h, kept := range heads {
							ofLayer += len(kept)
							equal = equal && len(kept) == budget
							if len(kept) < min(plan.Sink+plan.Recent, budget) {
								t.Errorf("layer %d, head %d keeps %d entries", l, h, len(kept))
							}
							if how == "learned" {
								for _, j := range slices.Concat(kept[:4], kept[len(kept)-recent:]) {
									if j >= 4 && int(j) < n-recent {
										t.Errorf("layer %d, head %d keeps %v: want the first 4 and the last %d of %d among them", l, h, kept, recent, n)
									}
								}
								if want := 4 + recent + (budget-4-recent)/5; len(kept) < want {
									t.Errorf("layer %d, head %d keeps %d entries, want %d at least", l, h, len(kept), want)
								}
							}
							for j := plan.Sink; j < n-plan.Recent; j++ {
								_, in := slices.BinarySearch(kept, int32(j))
								inLayer = append(inLayer, entry{s.Scores()[l][h][j], in})
							}
						}
						if how == "layer" {
							if ofLayer != budget*len(heads) {
								t.Errorf("layer %d keeps %d entries, want %d", l, ofLayer, budget*len(heads))
							}
							checkRanking(t, inLayer, func(e entry) (float32, bool) { return e.score, e.kept })
						}
						total += ofLayer
						all = append(all, inLayer...)
					}
					if want := budget * m.Config.Layers * m.Config.KVHeads; total != want || equal {
						t.Errorf("%d entries are kept, want %d, and not the same by all heads (%v)", total, want, equal)
					}
					if how == "global" {
						checkRanking(t, all, func(e entry) (float32, bool) { return e.score, e.kept })
					}
					if got := generate(t, s, 4); len(got) == 0 {
						t.Error("no answer")
					}
				})
			}
		}
	}
}

// checkRanking: nothing that is kept scores lower than anything that is not.
func checkRanking[E any](t *testing.T, all []E, of func(E) (score float32, kept bool)) {
	t.Helper()
	least, most := float32(math.Inf(1)), float32(math.Inf(-1))
	for _, e := range all {
		if score, kept := of(e); kept {
			least = min(least, score)
		} else {
			most = max(most, score)
		}
	}
	if least < most {
		t.Errorf("an entry of score %v is kept, one of %v is not", least, most)
	}
}

// TestLearnedBudgets: the budgets of heads sum to the budget whatever it is, keep the protected entries, never want more than
// there is, and are those that were learned where the budget is one of them.
func TestLearnedBudgets(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2}.Open(t, "cpu")
	b := randomBudgets(m, 5)
	for _, n := range []int{7, 100, 1000} {
		for _, budget := range []int{1, 3, 9, 50, 99, 100, 400, 999, 2000} {
			for _, least := range []int{0, 1, 4, 36} {
				got := eviction.HeadBudgetsOf(b, eviction.Prompt{Tokens: make([]int32, n), Entries: n, Budget: budget, Config: &m.Config}, least)
				sum := 0
				for _, heads := range got {
					for _, x := range heads {
						if sum += x; x < min(least, budget, n) || x > n {
							t.Errorf("%d of %d, %d protected: a head has %d", budget, n, least, x)
						}
					}
				}
				if want := min(budget, n) * 6; sum != want {
					t.Errorf("%d of %d, %d protected: %d in all, want %d", budget, n, least, sum, want)
				}
			}
		}
	}
	sum := 0.0
	for _, heads := range b.Budgets[0].Heads {
		for _, x := range heads {
			sum += x
		}
	}
	got := eviction.HeadBudgetsOf(b, eviction.Prompt{Tokens: make([]int32, 10000), Entries: 10000, Budget: 1000, Config: &m.Config}, 0)
	for l, heads := range b.Budgets[0].Heads {
		for h, x := range heads {
			if want := x / sum * 6000; float64(got[l][h]) < want-1 || float64(got[l][h]) > want+1 {
				t.Errorf("layer %d, head %d: got %d, want %.1f", l, h, got[l][h], want)
			}
		}
	}
}

// TestHeadsAreRefused: by policies that share their budget out themselves, without what was learned, and for other shapes.
func TestHeadsAreRefused(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2}.Open(t, "cpu")
	make := func(name, how string, b *eviction.HeadBudgets) error {
		overrides, err := eviction.ParseOverrides([]string{name + ".head-budgets=" + how})
		if err != nil {
			t.Fatal(err)
		}
		r := policy(t, m, name).Settings.Resources
		r.HeadBudgets = b
		p, err := eviction.NewWith(name, 0, overrides, r)
		if err == nil {
			err = p.Fits(m)
		}
		return err
	}
	for _, name := range []string{"adakv", "pyramidkv", "duoattention", "h2o", "d2o", "tova"} {
		if err := make(name, "global", nil); err == nil || !strings.Contains(err.Error(), "shares its budget out itself") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := make("snapkv", "learned", nil); err == nil || !strings.Contains(err.Error(), "no learned budgets") {
		t.Errorf("without budgets: %v", err)
	}
	if err := make("snapkv", "learned", randomBudgets(m, 1)); err != nil {
		t.Error(err)
	}
	other := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2}.Open(t, "cpu")
	for what, change := range map[string]func(b *eviction.HeadBudgets){
		"of another shape":   func(b *eviction.HeadBudgets) { *b = *randomBudgets(other, 1) },
		"none":               func(b *eviction.HeadBudgets) { b.Budgets = nil },
		"descending":         func(b *eviction.HeadBudgets) { slices.Reverse(b.Budgets) },
		"a share of 2":       func(b *eviction.HeadBudgets) { b.Budgets[1].Heads[2][1] = 2 },
		"a budget of 1":      func(b *eviction.HeadBudgets) { b.Budgets[1].Budget = 1 },
		"a head is missing":  func(b *eviction.HeadBudgets) { b.Budgets[1].Heads[2] = b.Budgets[1].Heads[2][:1] },
		"a layer is missing": func(b *eviction.HeadBudgets) { b.Budgets[0].Heads[2] = nil },
	} {
		b := randomBudgets(m, 1)
		if change(b); make("snapkv", "learned", b) == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
