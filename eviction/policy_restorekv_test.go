package eviction_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

func init() {
	// The rows' attention selects, or another policy; some of the budget is for those that stay.
	naivePolicies["restorekv"] = func(c *naiveCase) naivePlan {
		inner := *c
		if c.stage == nil { // else it scores for another, beside which no row stays
			inner.budget -= min(c.int("stay"), c.resources.Adapter.(*fakeAdapter).Rows(), c.budget/2)
		}
		scorer := c.text("scorer")
		if scorer == "restorekv" {
			return learnedPlan(&inner)
		}
		inner.resources.Adapter = c.resources.Scorer
		return inner.scoredBy(scorer, func(p naivePlan) naivePlan {
			p.sink = min(p.sink, inner.budget)
			p.recent = min(p.recent, inner.budget-p.sink)
			return p
		})
	}
}

// TestRowsStay: what an evicted cache holds is what was selected and the pairs of the last rows as they are behind the whole prompt, within the
// budget; what follows stands behind them. A study, a context and its file hold the same.
func TestRowsStay(t *testing.T) {
	const n, budget, rows = 90, 24, 5
	for _, device := range []string{"reference64", "cpu"} {
		m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 8}.Open(t, device)
		tokens := modeltest.Tokens(m, 4, n)
		rt := eviction.NewRuntime(m)
		for _, set := range [][]string{nil, {"restorekv.stay=3"}, {"restorekv.head-budgets=global"}} {
			p := policy(t, m, "restorekv", set...)
			stay := rows
			if len(set) > 0 && set[0] == "restorekv.stay=3" {
				stay = 3
			}
			s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: budget})
			if err != nil {
				t.Fatal(err)
			}
			r, whole := runner.New(m), kvcache.New(m)
			if _, err := r.Prefill(background, whole, tokens, runner.PrefillOptions{CacheOnly: true}); err != nil {
				t.Fatal(err)
			}
			if err := r.Append(background, whole, p.Settings.Resources.Adapter.(model.QueryRows)); err != nil {
				t.Fatal(err)
			}
			total := 0
			for l, heads := range s.Kept() {
				for h, kept := range heads {
					total += s.Cache.Entries(l, h)
					want := append(slices.Clone(kept), int32(n+rows-stay))
					for len(want) < len(kept)+stay {
						want = append(want, want[len(want)-1]+1)
					}
					if got := s.Cache.Positions(l, h); !slices.Equal(got, want) {
						t.Fatalf("layer %d, head %d holds %v, want %v", l, h, got, want)
					}
					checkPairs(t, s.Cache.View(l)[h], whole.View(l)[h], want)
				}
			}
			if heads := m.Config.Layers * m.Config.KVHeads; total != budget*heads || s.Cache.Next() != n+rows || s.Prompt.Budget != budget {
				t.Errorf("%v: %d entries, next position %d, want %d and %d", set, total, s.Cache.Next(), budget*heads, n+rows)
			}
			w := p.Workload(&m.Config, n, budget, 8)
			if !w.Waits || set == nil && w.Held[0] != budget {
				t.Errorf("%v: the workload is %+v", set, w)
			}
			study, err := rt.Study(background, []*eviction.Configured{p}, eviction.Prompt{Tokens: tokens}, []int{budget}, runner.GenerateOptions{MaxNew: 4})
			if err != nil {
				t.Fatal(err)
			}
			of, err := study.Session(study.Choices[0])
			if err != nil {
				t.Fatal(err)
			}
			answer := generate(t, s, 8)
			if got := generate(t, of, 8); !slices.Equal(got, answer) || of.Cache.Bytes() != s.Cache.Bytes() {
				t.Errorf("%v: a study's session answers %v, want %v", set, got, answer)
			}
			if err := s.Turn(background, eviction.Prompt{Tokens: tokens[:7]}); err != nil {
				t.Errorf("%v: second turn: %v", set, err)
			}
			inContext(t, rt, p, tokens, budget)
		}
		s, err := rt.Prefill(background, policy(t, m, "restorekv"), eviction.Prompt{Tokens: tokens, Budget: n})
		if err != nil || s.Cache.Next() != n || s.Cache.Entries(0, 0) != n {
			t.Errorf("%s: a prompt within the budget has %d entries, %v", device, s.Cache.Entries(0, 0), err)
		}
	}
}

// TestRowsStayBesideAnotherScorer: what another policy selects is what it selects alone within the smaller budget, and the rows stay beside it.
func TestRowsStayBesideAnotherScorer(t *testing.T) {
	const n, budget, stay, last = 90, 24, 3, 5
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 8}.Open(t, "reference64")
	prompt := eviction.Prompt{Tokens: modeltest.Tokens(m, 4, n), Budget: budget}
	rt := eviction.NewRuntime(m)
	for scorer, set := range map[string][]string{"lookaheadkv": {"lookaheadkv.kernel=3"}, "snapkv": {"snapkv.window=6"}, "kvzip": nil, "laq": {"laq.lookahead=3"}} {
		p := policy(t, m, "restorekv", append(set, "restorekv.scorer="+scorer, "restorekv.stay=3")...)
		s, err := rt.Prefill(background, p, prompt)
		if err != nil {
			t.Fatalf("%s: %v", scorer, err)
		}
		overrides, err := eviction.ParseOverrides(set)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := eviction.New(scorer, policySeed, overrides, p.Settings.Resources.Scorer)
		if err != nil {
			t.Fatal(err)
		}
		of, err := rt.Prefill(background, alone, eviction.Prompt{Tokens: prompt.Tokens, Budget: budget - stay})
		if err != nil {
			t.Fatalf("%s: %v", scorer, err)
		}
		if got, want := s.Kept(), of.Kept(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v is kept, want %v", scorer, got, want)
		}
		if got := s.Cache.Entries(0, 0); got != budget || s.Cache.Next() != n+last {
			t.Errorf("%s: %d entries, next position %d, want %d and %d", scorer, got, s.Cache.Next(), budget, n+last)
		}
	}
	overrides, err := eviction.ParseOverrides([]string{"restorekv.scorer=lookaheadkv"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []eviction.Resources{{Adapter: fakeOfKind(m, "restorekv", 9)}, {Adapter: fakeOfKind(m, "restorekv", 9), Scorer: fakeOfKind(m, "judgeq", 9)}} {
		if _, err := eviction.NewWith("restorekv", 0, overrides, r); err == nil || !strings.Contains(err.Error(), `needs an adapter of kind "lookaheadkv" that scores`) {
			t.Errorf("%v", err)
		}
	}
}

// checkPairs compares pairs with those of a whole cache at some positions.
func checkPairs(t *testing.T, got, whole kernels.KV, positions []int32) {
	t.Helper()
	for i, j := range positions {
		for what, of := range map[string][2]*kernels.Tensor{"key": {got.K, whole.K}, "value": {got.V, whole.V}} {
			if !slices.Equal(of[0].Rows(i, i+1).Float64s(), of[1].Rows(int(j), int(j)+1).Float64s()) {
				t.Fatalf("the %s at position %d is another one", what, j)
			}
		}
	}
}

// inContext: a context and its file answer alike, and tell of the prompt's tokens alone.
func inContext(t *testing.T, rt *eviction.Runtime, p *eviction.Configured, tokens []int32, budget int) {
	t.Helper()
	s, err := rt.NewSession(p, eviction.Pairs(budget))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Compress(background, eviction.Prompt{Tokens: tokens}, 20); err != nil {
		t.Fatal(err)
	}
	c := s.Context
	for _, heads := range c.Kept() {
		for _, kept := range heads {
			if int(kept[len(kept)-1]) >= len(tokens) {
				t.Fatalf("%v is kept of %d tokens", kept, len(tokens))
			}
		}
	}
	var file bytes.Buffer
	m := rt.Runner.Model
	if err := c.Write(background, m, &file, eviction.ContextOrigin{Budget: c.Budget.String()}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "doc.kv")
	if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	opened, err := eviction.OpenContext(path)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	again, err := opened.Read(background, m)
	if err != nil {
		t.Fatal(err)
	}
	var answers [][]int32
	for _, c := range []*eviction.Context{c, again} {
		if err := s.Resume(c, 20); err != nil {
			t.Fatal(err)
		}
		if err := s.Turn(background, eviction.Prompt{Tokens: tokens[:5]}); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, generate(t, s, 6))
	}
	if !slices.Equal(answers[0], answers[1]) {
		t.Errorf("from a file %v, want %v", answers[1], answers[0])
	}
}
