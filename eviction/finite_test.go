package eviction_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// finiteDevices are those whose scores are checked.
var finiteDevices = []string{"cpu"}

// hugeAdapter has finite numbers whose products are not: as a file may hold them.
func hugeAdapter(m *model.Model, kind string) *fakeAdapter {
	a := newFakeAdapter(m, kind, 5, 9)
	rows := a.rows.Float64s()
	for j := range rows {
		rows[j] = math.Copysign(3e38, rows[j])
	}
	a.rows = m.Parameter(rows, a.rows.Dim0(), a.rows.Width())
	for _, u := range a.low {
		u.Scale = math.MaxFloat32
	}
	return a
}

// TestScoresThatAreNotFinite: no policy ranks by NaN. The message names policy, layer and head.
func TestScoresThatAreNotFinite(t *testing.T) {
	const n, budget = 60, 12
	for _, device := range finiteDevices {
		m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, device)
		for _, c := range []struct {
			policy, kind string
			set          []string
		}{
			{policy: "lookaheadkv", kind: "lookaheadkv"},
			{policy: "lookaheadkv", kind: "lookaheadkv", set: []string{"lookaheadkv.group=max"}},
			{policy: "lookaheadkv", kind: "lookaheadkv", set: []string{"lookaheadkv.window=4"}},
			{policy: "adakv", kind: "lookaheadkv", set: []string{"adakv.scorer=lookaheadkv"}},
			{policy: "compose", kind: "lookaheadkv", set: []string{"compose.scorer=lookaheadkv"}},
			{policy: "lookaheadkv:quest", kind: "lookaheadkv"},
		} {
			t.Run(fmt.Sprint(device, "/", c.policy, c.set), func(t *testing.T) {
				overrides, err := eviction.ParseOverrides(c.set)
				if err != nil {
					t.Fatal(err)
				}
				for _, adapter := range []*fakeAdapter{newFakeAdapter(m, c.kind, 5, 9), hugeAdapter(m, c.kind)} {
					p, err := eviction.New(c.policy, 0, overrides, adapter)
					if err != nil {
						t.Fatal(err)
					}
					tokens, rt := modeltest.Tokens(m, 4, n), eviction.NewRuntime(m)
					_, alone := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: budget})
					_, together := rt.Study(background, []*eviction.Configured{p}, eviction.Prompt{Tokens: tokens}, []int{n, budget}, runner.GenerateOptions{MaxNew: 4})
					huge := adapter.low[key(0, model.QProj)].Scale == math.MaxFloat32
					for what, err := range map[string]error{"prefill": alone, "study": together} {
						switch {
						case !huge && err != nil:
							t.Errorf("%s: %v", what, err)
						case huge && !errors.Is(err, model.ErrNonFinite):
							t.Errorf("%s with NaN scores: error %v, want ErrNonFinite", what, err)
						case huge && (!strings.Contains(err.Error(), "policy "+p.Name) || !strings.Contains(err.Error(), ": KV head 0: ")):
							t.Errorf("%s: error %q does not name policy, layer and head", what, err)
						}
					}
				}
			})
		}
	}
}

// TestScoresOfWeightsThatAreNotFinite: where weights are to blame, the error names them.
func TestScoresOfWeightsThatAreNotFinite(t *testing.T) {
	for _, device := range finiteDevices {
		for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
			m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, device)
			p := policy(t, m, name)
			m.Backend.Fill(m.Network.Layers[1].Linear(model.KProj).Weight.Rows(1, 2), math.NaN())
			_, err := eviction.NewRuntime(m).Prefill(background, p, eviction.Prompt{Tokens: modeltest.Tokens(m, 4, 60), Budget: 12})
			if !errors.Is(err, model.ErrNonFiniteWeights) && device == "cpu" || !errors.Is(err, model.ErrNonFinite) && device != "cpu" {
				t.Errorf("%s/%s: %v", device, name, err)
			}
		}
	}
}

// TestStepsThatAreNotFinite: a policy that evicts while decoding does not rank by NaN.
func TestStepsThatAreNotFinite(t *testing.T) {
	for _, device := range finiteDevices {
		for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
			m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, device)
			p := policy(t, m, name)
			if ok := planOf(m, p).Decode != nil; !ok {
				continue
			}
			s := prefill(t, m, p, modeltest.Tokens(m, 4, 60), 12)
			for _, kv := range s.Cache.View(1) {
				m.Backend.Fill(kv.K.Rows(1, 2), math.NaN())
			}
			if _, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 6, IgnoreEnd: true}); !errors.Is(err, model.ErrNonFinite) {
				t.Errorf("%s/%s: %v, want ErrNonFinite", device, name, err)
			}
		}
	}
}

// TestScoresOfStepsThatAreNotFinite: scores that a policy carries from step to step may be no
// numbers although the logits are. The step in which it ranks by them is an error that names
// policy, layer and head, alone and in a batch, where other sessions go on.
func TestScoresOfStepsThatAreNotFinite(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	opt := runner.GenerateOptions{MaxNew: 6, IgnoreEnd: true}
	var spoiled []string
	for _, name := range eviction.Policies.Names() {
		for _, value := range []float64{math.NaN(), math.Inf(1)} {
			session := func() (*eviction.Session, bool) {
				s := prefill(t, m, policy(t, m, name), modeltest.Tokens(m, 4, 60), 12)
				return s, eviction.SpoilScores(s, 1, value)
			}
			s, ok := session()
			if !ok {
				continue
			}
			spoiled = append(spoiled, name)
			tokens, _, alone := s.Generate(background, opt)
			b := newBatch(t, m, 2)
			s, _ = session()
			bad, err := s.Join(b, opt)
			if err != nil {
				t.Fatal(err)
			}
			good, err := prefill(t, m, policy(t, m, name), modeltest.Tokens(m, 5, 50), 12).Join(b, opt)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Run(background); err != nil || good.Err() != nil || len(good.Tokens()) != opt.MaxNew {
				t.Errorf("%s: beside a session that fails: %d tokens, %v, %v", name, len(good.Tokens()), good.Err(), err)
			}
			want := fmt.Sprintf("policy %s: layer 1: KV head 1: the score of entry 1 of ", name)
			for what, err := range map[string]error{"alone": alone, "in a batch": bad.Err()} {
				if !errors.Is(err, model.ErrNonFinite) || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%s with a score of %v %s: error %v, want %s…", name, value, what, err, want)
				}
			}
			if len(tokens) != 1 || len(bad.Tokens()) != 1 {
				t.Errorf("%s: %d and %d tokens, want those before the step", name, len(tokens), len(bad.Tokens()))
			}
		}
	}
	if want := []string{"cam", "d2o", "h2o", "roco"}; !slices.Equal(slices.Compact(spoiled), want) {
		t.Errorf("policies that carry scores: %v, want %v", spoiled, want)
	}
}
