package eviction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestRocketKVIsStaged: snapkv with rocketkv's options and then hsa is rocketkv, to
// the last token and byte.
func TestRocketKVIsStaged(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 6, KVHeads: 2, HeadDim: 8, Seed: 3}.Open(t, "cpu")
	for _, n := range []int{5, 60, 300} {
		for _, budget := range []int{1, 4, 16, 50} {
			tokens := modeltest.Tokens(m, 6, n)
			rt := eviction.NewRuntime(m)
			var sessions []*eviction.Session
			var answers [][]int32
			for _, p := range []*eviction.Configured{
				policy(t, m, "rocketkv", "rocketkv.window=9", "rocketkv.kernel=5"),
				staged(t, policy(t, m, "snapkv", "snapkv.window=9", "snapkv.kernel=5"), policy(t, m, "hsa")),
			} {
				s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, MaxNew: 20, Budget: budget})
				if err != nil {
					t.Fatal(err)
				}
				sessions, answers = append(sessions, s), append(answers, generate(t, s, 20))
			}
			a, b := sessions[0], sessions[1]
			if !sameKept(a.Kept(), b.Kept()) || !slices.Equal(answers[0], answers[1]) || a.Traffic != b.Traffic || a.Bytes() != b.Bytes() {
				t.Errorf("n=%d/budget=%d: kept %v and %v, answers %v and %v, traffic %+v and %+v", n, budget, a.Kept(), b.Kept(), answers[0], answers[1], a.Traffic, b.Traffic)
			}
		}
	}
}

func staged(t *testing.T, first, second *eviction.Configured) *eviction.Configured {
	t.Helper()
	p, err := eviction.TwoStage(first, second)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEveryComposition: every sparse policy on top of every policy that evicts only
// the prompt keeps its traffic, holds more than the budget and not everything, and
// does the same in a study as alone; other pairs are refused.
func TestEveryComposition(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Seed: 2}.Open(t, "cpu")
	const n, budget, steps = 120, 12, 10
	tokens := modeltest.Tokens(m, 4, n)
	heads := m.Config.Layers * m.Config.KVHeads
	rt := eviction.NewRuntime(m)
	var all []*eviction.Configured
	for _, a := range eviction.Policies.Names() {
		first := policy(t, m, a)
		for _, b := range eviction.Policies.Names() {
			second := policy(t, m, b)
			p, err := eviction.TwoStage(first, second)
			if ok := (first.Policy.Kind == "none" || first.Policy.Kind == "prefill") && second.Policy.Kind == "decode"; ok != (err == nil) {
				t.Errorf("%s:%s: %v", a, b, err)
			}
			if err == nil {
				all = append(all, p)
			}
		}
	}
	study, err := rt.Study(background, all, eviction.Prompt{Tokens: tokens}, []int{budget}, runner.GenerateOptions{MaxNew: 30})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		s, err := study.Session(study.Choices[i])
		if err != nil {
			t.Fatal(err)
		}
		held := 0
		for l := range m.Config.Layers {
			for h := range m.Config.KVHeads {
				held += s.Cache.Entries(l, h)
			}
		}
		evicts := !strings.HasPrefix(p.Name, "full:")
		if held <= heads*budget || evicts == (held == heads*n) {
			t.Errorf("%s: holds %d entries", p.Name, held)
		}
		answer := generate(t, s, steps)
		if limit := int64(heads*budget) * entryBytes(m); s.Traffic.Most > limit || s.Traffic.Steps != steps-1 {
			t.Errorf("%s: traffic %+v, want at most %d in a step", p.Name, s.Traffic, limit)
		}
		alone, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: budget, Response: study.Response})
		if err != nil {
			t.Fatal(err)
		}
		if !sameKept(alone.Kept(), s.Kept()) || !slices.Equal(generate(t, alone, steps), answer) {
			t.Errorf("%s: another choice or answer alone than in a study", p.Name)
		}
	}
	if len(all) < 20 {
		t.Errorf("%d compositions", len(all))
	}
}

func TestCompositionsByName(t *testing.T) {
	p, err := eviction.New("snapkv:quest", 0, eviction.Overrides{"snapkv": {"window": 5}, "quest": {"page": 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "snapkv:quest" || p.Settings.Int("window") != 5 || p.Second == nil || fmt.Sprint(p.Second) != fmt.Sprint(policy(t, nil, "quest", "quest.page=4").Method) {
		t.Errorf("%+v", p)
	}
	for name, want := range map[string]string{
		"snapvk:quest":       `unknown policy "snapvk"`,
		"snapkv:qest":        `unknown policy "qest"`,
		"snapkv:h2o":         "policy snapkv:h2o: second stage h2o, want a sparse policy of kind decode",
		"snapkv:rocketkv":    "second stage rocketkv, want a sparse policy",
		"h2o:quest":          "policy h2o:quest: h2o goes on while decoding, want a first stage",
		"quest:sparq":        "quest goes on while decoding",
		"snapkv:quest:sparq": "policy quest:sparq: quest goes on while decoding",
		"judgeq:quest":       "needs an adapter",
	} {
		_, err := eviction.New(name, 0, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want it to say %q", name, err, want)
		}
	}
	for name, want := range map[string]string{"snapkv:qest": `unknown policy "qest"`, "snapvk": `unknown policy "snapvk"`} {
		if _, err := eviction.LookupPolicy(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("look up %s: %v", name, err)
		}
	}
}
