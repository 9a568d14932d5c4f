package training_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/gates"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/training"
)

// TestKeptSetsOfKVpress: what kvzap keeps by gates of each layout is what kvpress 0.5.5 keeps (golden_gates.py).
func TestKeptSetsOfKVpress(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS("../model/testdata/golden/llama3.2-tied"), "cpu")
	var g struct {
		Tokens []int32                `json:"tokens"`
		Kept   map[string][][][]int32 `json:"kept"`
	}
	modeltest.ReadJSON(t, "../gates/testdata/kept.json", &g)
	for name, c := range map[string]struct {
		folder string
		set    []string
	}{
		"linear":           {"linear", []string{"kvzap.window=0", "kvzap.sink=0"}},
		"mlp":              {"mlp", []string{"kvzap.window=0", "kvzap.sink=0"}},
		"fastkvzip/global": {"fastkvzip", []string{"kvzap.window=2", "kvzap.head-budgets=global"}},
		"fastkvzip/layer":  {"fastkvzip", []string{"kvzap.window=2", "kvzap.head-budgets=layer"}},
	} {
		stored, err := checkpoints.ReadAdapter(filepath.Join("../gates/testdata", c.folder))
		if err != nil {
			t.Fatal(err)
		}
		a, err := m.LoadAdapter(t.Context(), stored)
		if err != nil {
			t.Fatal(err)
		}
		overrides, err := eviction.ParseOverrides(c.set)
		if err != nil {
			t.Fatal(err)
		}
		p, err := eviction.New("kvzap", 0, overrides, a)
		if err != nil {
			t.Fatal(err)
		}
		s, err := eviction.NewRuntime(m).Prefill(t.Context(), p, eviction.Prompt{Tokens: g.Tokens, Budget: len(g.Tokens) / 2})
		if err != nil {
			t.Fatal(err)
		}
		for l, heads := range s.Kept() {
			for h, kept := range heads {
				if !slices.Equal(kept, g.Kept[name][l][h]) {
					t.Errorf("%s: layer %d head %d keeps %v, kvpress %v", name, l, h, kept, g.Kept[name][l][h])
				}
			}
		}
	}
}

// TestThresholdOfKVpress: what kvzap holds with a threshold, after a prompt and the tokens of an answer, is what kvpress 0.5.5 has
// not masked (DMSPress around KVzapPress, golden_gates.py).
func TestThresholdOfKVpress(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS("../model/testdata/golden/llama3.2-tied"), "cpu")
	var g struct {
		Tokens     []int32                    `json:"tokens"`
		Answer     []int32                    `json:"answer"`
		Window     float64                    `json:"window"`
		Thresholds map[string]float64         `json:"thresholds"`
		Kept       map[string][][][][]float64 `json:"kept"` // [tokens of the answer that have run][layer][kvHead]
	}
	modeltest.ReadJSON(t, "../gates/testdata/threshold.json", &g)
	if len(g.Thresholds) != 2 {
		t.Fatalf("thresholds of %d gates, want 2", len(g.Thresholds))
	}
	for name, threshold := range g.Thresholds {
		stored, err := checkpoints.ReadAdapter(filepath.Join("../gates/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		a, err := m.LoadAdapter(t.Context(), stored)
		if err != nil {
			t.Fatal(err)
		}
		p, err := eviction.New("kvzap", 0, eviction.Overrides{"kvzap": {"threshold": threshold, "window": g.Window, "sink": 0, "decode": 1}}, a)
		if err != nil {
			t.Fatal(err)
		}
		for ran := range len(g.Answer) {
			s, err := eviction.NewRuntime(m).Prefill(t.Context(), p, eviction.Prompt{Tokens: g.Tokens, Budget: eviction.MaxBudget})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Force(t.Context(), g.Answer[:ran+1]); err != nil { // the last token of which does not run
				t.Fatal(err)
			}
			for l, heads := range g.Kept[name][ran] {
				for h, want := range heads {
					got := make([]float64, 0, len(want))
					for _, pos := range s.Cache.Positions(l, h) {
						got = append(got, float64(pos))
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s: after %d tokens layer %d head %d holds %v, kvpress %v", name, ran, l, h, got, want)
					}
				}
			}
		}
	}
}

// TestGatesRun: gates that are learned are an adapter for the model, and say something of contexts that they have not seen. The norm
// of a key is no linear map, so that they do not say all.
func TestGatesRun(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 4}.Open(t, "cpu")
	label, err := eviction.New("knorm", 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(0)
	r := &training.GatesRun{
		Model: m, Label: label, Text: "knorm", Contexts: 20, Ridge: 1e-6, From: "the test", Progress: func(int) {},
		Next: func() (context, response []int32, err error) { seed++; return modeltest.Tokens(m, seed, 90), nil, nil },
	}
	learned, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if learned.Metrics["tokens"] != 1800 || !(learned.Metrics["explained"] > 0.2) {
		t.Errorf("metrics %v, want 1800 tokens and a fifth of the variance at least", learned.Metrics)
	}
	a, err := m.LoadAdapter(t.Context(), learned)
	if err != nil {
		t.Fatal(err)
	}
	if a.Kind() != gates.Kind || model.PolicyOf(a.Kind()) != "kvzap" {
		t.Errorf("kind %q", a.Kind())
	}
	if err := checkpoints.WriteAdapter(filepath.Join(t.TempDir(), "gates"), learned, false); err != nil {
		t.Error(err)
	}
}
