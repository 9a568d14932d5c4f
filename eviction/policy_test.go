package eviction_test

import (
	"context"
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

// TestPoliciesDescribeThemselves: what help texts and tables are made of, and
// defaults that their own options accept.
func TestPoliciesDescribeThemselves(t *testing.T) {
	names := eviction.Policies.Names()
	for _, want := range []string{"full", "random", "streamingllm", "h2o", "snapkv", "pyramidkv", "dapq", "laq", "judgeq", "lookaheadkv", "oracle", "adakv", "compose", "knorm", "lacache", "laq++", "speckv", "duoattention"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not registered", want)
		}
	}
	for _, name := range names {
		p, err := eviction.Policies.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Doc == "" || p.Source == "" || !slices.Contains([]string{"none", "prefill", "prefill + decode", "decode", "multi-turn"}, p.Kind) {
			t.Errorf("%s: doc %q, source %q, kind %q", name, p.Doc, p.Source, p.Kind)
		}
		var seen []string
		for _, o := range p.Options {
			if slices.Contains(seen, o.Name) || o.Name == "" || o.Doc == "" || strings.ContainsAny(o.Name, ".= ") {
				t.Errorf("%s: option %q: %q", name, o.Name, o.Doc)
			}
			seen = append(seen, o.Name)
			values := []string{o.FormatValue(o.Start()), o.FormatValue(o.Min)}
			if o.Choices != nil {
				values = o.Choices()
			}
			for _, v := range values {
				if _, err := eviction.ParseOverrides([]string{fmt.Sprintf("%s.%s=%v", name, o.Name, v)}); err != nil {
					t.Errorf("%s: option %s: %v", name, o.Name, err)
				}
			}
		}
		m := modeltest.Llama{}.Open(t, "cpu")
		plan := planOf(m, policy(t, m, name))
		evicts, sparse := plan.Decode != nil, plan.Sparse != nil
		if want := p.Kind != "none" && p.Kind != "prefill"; (evicts || sparse) != want {
			t.Errorf("%s: kind %q, evicts while decoding: %v, reads sparsely: %v", name, p.Kind, evicts, sparse)
		}
	}
}

func TestParseOverrides(t *testing.T) {
	for _, c := range []struct {
		name string
		set  []string
		want string // of the error; "" accepts
	}{
		{"none", nil, ""},
		{"several", []string{"snapkv.window=16", "snapkv.kernel=5", "h2o.recent=0.25", "streamingllm.sink=0"}, ""},
		{"the last counts", []string{"snapkv.window=16", "snapkv.window=8"}, ""},
		{"number of any form", []string{"snapkv.window=1.6e1"}, ""},
		{"unknown policy", []string{"snapvk.window=16"}, `unknown policy "snapvk", want one of: ` + strings.Join(eviction.Policies.Names(), ", ")},
		{"unknown option", []string{"snapkv.widow=16"}, `policy snapkv has no option "widow", want one of: window, kernel`},
		{"option of a policy without", []string{"full.window=16"}, `policy full has no option "window", it has none`},
		{"choice", []string{"snapkv.group=max", "laq++.rows=4", "adakv.scorer=laq++"}, ""},
		{"unknown choice", []string{"snapkv.group=median"}, `got "median", want one of: mean, max, sum`},
		{"no value", []string{"snapkv.window"}, "want policy.option=value"},
		{"no option", []string{"snapkv=16"}, "want policy.option=value"},
		{"empty", []string{""}, "want policy.option=value"},
		{"empty value", []string{"snapkv.window="}, `got "", want a whole number from 1 to`},
		{"text", []string{"snapkv.window=wide"}, `got "wide", want a whole number from 1 to`},
		{"below", []string{"snapkv.window=0"}, `got "0", want a whole number from 1 to 1048576`},
		{"above", []string{"h2o.recent=1.01"}, `got "1.01", want a number from 0 to 1`},
		{"negative", []string{"streamingllm.sink=-1"}, `got "-1", want a whole number from 0 to`},
		{"NaN", []string{"h2o.recent=NaN"}, `got "NaN", want a number`},
		{"infinite", []string{"pyramidkv.beta=Inf"}, `got "Inf", want a number`},
		{"overflow", []string{"pyramidkv.beta=1e999"}, `got "1e999", want a number`},
		{"fraction", []string{"snapkv.window=16.5"}, `got "16.5", want a whole number`},
		{"even kernel", []string{"snapkv.kernel=4"}, `got "4", want an odd number`},
		{"kernel of no prompt", []string{"snapkv.kernel=9223372036854775807"}, `got "9223372036854775807", want an odd number from 1 to 4095`},
		{"fractional kernel", []string{"lookaheadkv.kernel=6.5"}, `got "6.5", want an odd number`},
	} {
		got, err := eviction.ParseOverrides(c.set)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want it to say %q", c.name, err, c.want)
		case c.want != "" && len(c.set[0]) > 0 && !strings.Contains(err.Error(), fmt.Sprintf("set %q", c.set[0])):
			t.Errorf("%s: error %v does not name the flag", c.name, err)
		case c.name == "the last counts" && got["snapkv"]["window"] != 8:
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestNewSettlesOptions(t *testing.T) {
	overrides, err := eviction.ParseOverrides([]string{"snapkv.window=16", "h2o.recent=0.25"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := eviction.New("snapkv", 7, overrides, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := p.Settings.Values(); len(v) != 5 || v["window"] != 16 || v["kernel"] != 7 || p.Settings.Seed != 7 || p.Settings.Int("window") != 16 || p.Name != "snapkv" {
		t.Errorf("%+v", p)
	}
	p.Settings.Values()["window"] = 1
	if p.Settings.Int("window") != 16 {
		t.Error("Values hands out the settings themselves")
	}
	if _, err := eviction.New("snapvk", 0, nil, nil); err == nil || !strings.Contains(err.Error(), `unknown policy "snapvk", want one of: `+eviction.Policies.Names()[0]) {
		t.Errorf("unknown policy: %v", err)
	}
}

// TestNewRefusesWhatFlagsRefuse: overrides that no flag has gone through.
func TestNewRefusesWhatFlagsRefuse(t *testing.T) {
	for _, c := range []struct {
		policy, option string
		value          float64
		want           string
	}{
		{"snapkv", "kernel", math.MaxInt64, `policy snapkv: option kernel: got "9.223372036854776e+18", want an odd number from 1 to 4095`},
		{"snapkv", "kernel", 4, `policy snapkv: option kernel: got "4", want an odd number`},
		{"snapkv", "kernel", 2.5, `policy snapkv: option kernel: got "2.5", want an odd number`},
		{"snapkv", "kernel", math.NaN(), `policy snapkv: option kernel: got "NaN", want an odd number from 1 to 4095`},
		{"snapkv", "group", 3, `policy snapkv: option group: got "3", want one of: mean, max, sum`},
		{"snapkv", "kernels", 3, `policy snapkv has no option "kernels", want one of: window, kernel, group`},
	} {
		overrides := eviction.Overrides{c.policy: {c.option: c.value}}
		for _, name := range []string{c.policy, "adakv"} { // which scores by snapkv
			if _, err := eviction.New(name, 0, overrides, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s=%v: error %v, want %q", name, c.option, c.value, err, c.want)
			}
		}
	}
}

func TestAdaptersOfTheWrongKind(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	judgeq, lookahead := newFakeAdapter(m, "judgeq", 3, 1), newFakeAdapter(m, "lookaheadkv", 3, 1)
	for _, c := range []struct {
		policy  string
		adapter model.Adapter
		want    string
	}{
		{"judgeq", judgeq, ""},
		{"lookaheadkv", lookahead, ""},
		{"judgeq", lookahead, `policy judgeq: adapter of kind "lookaheadkv", want "judgeq"`},
		{"lookaheadkv", judgeq, `policy lookaheadkv: adapter of kind "judgeq", want "lookaheadkv"`},
		{"judgeq", nil, `policy judgeq: needs an adapter of kind "judgeq", got none`},
		{"lookaheadkv", nil, `policy lookaheadkv: needs an adapter of kind "lookaheadkv", got none`},
		{"snapkv", judgeq, `policy snapkv: takes no adapter, got one of kind "judgeq"`},
		{"full", lookahead, `policy full: takes no adapter, got one of kind "lookaheadkv"`},
	} {
		_, err := eviction.New(c.policy, 0, nil, c.adapter)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: error %v, want %q", c.policy, err, c.want)
		}
	}
}

// TestHitRate: Judge Q, arXiv:2509.10798, eq. 6 on sets small enough to count.
func TestHitRate(t *testing.T) {
	for _, c := range []struct {
		name           string
		kept, critical [][][]int32
		want           float64
	}{
		{"all", [][][]int32{{{1, 2, 3}}}, [][][]int32{{{1, 2, 3}}}, 1},
		{"none", [][][]int32{{{0, 4}}}, [][][]int32{{{1, 2, 3}}}, 0},
		{"one of three", [][][]int32{{{0, 2, 9}}}, [][][]int32{{{1, 2, 3}}}, 1.0 / 3},
		{"more kept than critical", [][][]int32{{{0, 1, 2, 3, 4}}}, [][][]int32{{{1, 4}}}, 1},
		{"fewer kept than critical", [][][]int32{{{4}}}, [][][]int32{{{1, 4}}}, 0.5},
		{"nothing kept", [][][]int32{{{}}}, [][][]int32{{{1, 4}}}, 0},
		// (½ + 1)/2 in the first layer, (0 + ¼)/2 in the second.
		{"mean over heads and layers", [][][]int32{{{0, 1}, {5}}, {{}, {3}}}, [][][]int32{{{1, 2}, {5}}, {{7}, {0, 1, 2, 3}}}, (0.5 + 1 + 0 + 0.25) / 4},
		{"a head without critical entries does not count", [][][]int32{{{0}, {5}}}, [][][]int32{{{0}, {}}}, 1},
		{"no critical entries", [][][]int32{{{0}}}, [][][]int32{{{}}}, 0},
	} {
		if got := eviction.HitRate(c.kept, c.critical); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestHitRateOfPolicies: the oracle hits everything, a uniform draw about the
// budget's share.
func TestHitRateOfPolicies(t *testing.T) {
	m := modeltest.Llama{Layers: 6, Heads: 8, KVHeads: 8, HeadDim: 4}.Open(t, "cpu")
	const n, budget = 150, 50
	study, err := eviction.NewRuntime(m).Study(background, []*eviction.Configured{policy(t, m, "oracle"), policy(t, m, "random"), policy(t, m, "full")}, eviction.Prompt{Tokens: modeltest.Tokens(m, 1, n)}, []int{budget}, runner.GenerateOptions{MaxNew: 20})
	if err != nil {
		t.Fatal(err)
	}
	oracle := study.Choices[0].Kept
	if got := eviction.HitRate(oracle, oracle); got != 1 {
		t.Errorf("oracle: %v", got)
	}
	if got := eviction.HitRate(study.Choices[2].Kept, oracle); got != 1 {
		t.Errorf("full: %v", got)
	}
	if got, want := eviction.HitRate(study.Choices[1].Kept, oracle), float64(budget)/n; math.Abs(got-want) > 0.05 {
		t.Errorf("random: %v, want about %v", got, want)
	}
}

// TestRefusals: budgets, prompts and cancellation.
func TestRefusals(t *testing.T) {
	m := modeltest.Llama{MaxPositions: 50}.Open(t, "cpu")
	rt := eviction.NewRuntime(m)
	cancelled, cancel := context.WithCancel(background)
	cancel()
	for _, name := range eviction.Policies.Names() {
		p := policy(t, m, name)
		for what, c := range map[string]struct {
			ctx    context.Context
			tokens []int32
			budget int
			want   string
			is     error
		}{
			"budget 0":     {background, []int32{1, 2}, 0, "budget: got 0, want at least 1 entry per KV head", nil},
			"budget below": {background, []int32{1, 2}, -3, "budget: got -3", nil},
			"empty prompt": {background, nil, 3, "empty prompt", nil},
			"foreign id":   {background, []int32{1, 40}, 3, "token 1: id 40", nil},
			"long prompt":  {background, make([]int32, 51), 3, "want at most 50", model.ErrContext},
			"cancelled":    {cancelled, []int32{1, 2, 3, 4}, 3, "", context.Canceled},
		} {
			s, err := rt.Prefill(c.ctx, p, eviction.Prompt{Tokens: c.tokens, Budget: c.budget})
			if err == nil || s != nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
			study, err := rt.Study(c.ctx, []*eviction.Configured{p}, eviction.Prompt{Tokens: c.tokens}, []int{9, c.budget}, runner.GenerateOptions{MaxNew: 4})
			if err == nil || study != nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: %s: study: %v", name, what, err)
			}
		}
	}
}
