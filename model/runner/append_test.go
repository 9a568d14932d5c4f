package runner_test

import (
	"errors"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestAppendedRows: rows that are tokens leave the cache that a prompt of them does, and their last states are those that a prompt's
// logits are made of; what does not fit the context is refused, and Hidden leaves the cache as it was.
func TestAppendedRows(t *testing.T) {
	models := map[string]*model.Model{"llama": modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, MaxPositions: 60}.Open(t, "reference64")}
	for _, name := range []string{"qwen3-next", "gemma4-e2b", "gemma3"} {
		m, err := model.Open(modeltest.GoldenNamed(t, name).Folder, model.Options{Device: "reference64"})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		models[name] = m
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			r, tokens := runner.New(m), modeltest.Tokens(m, 3, 40)
			whole, parts := kvcache.New(m), kvcache.New(m)
			logits, err := r.Prefill(t.Context(), whole, tokens, runner.PrefillOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Prefill(t.Context(), parts, tokens[:25], runner.PrefillOptions{CacheOnly: true}); err != nil {
				t.Fatal(err)
			}
			rows := model.TokenRows(tokens[25:])
			hidden, err := r.Hidden(t.Context(), parts, rows)
			if err != nil {
				t.Fatal(err)
			}
			if parts.Next() != 25 || hidden.Dim0() != 15 {
				t.Fatalf("next position %d, %d states", parts.Next(), hidden.Dim0())
			}
			if m.Config.LogitCap == 0 {
				got := m.Backend.Alloc(m.Backend.Compute(), 1, m.Config.Vocab)
				m.Backend.Linear(got, hidden.Rows(14, 15), m.Network.Head.Weight, m.Network.Head.Bias, m.Config.LogitFactor(), 0)
				want := make([]float64, len(logits))
				for i, x := range logits {
					want[i] = float64(x)
				}
				compare.Close(t, "logits", got.Float64s(), want, 1e-5, compare.Floor(1e-4))
			}
			if err := r.Append(t.Context(), parts, rows); err != nil {
				t.Fatal(err)
			}
			if parts.Next() != 40 {
				t.Errorf("next position %d, want 40", parts.Next())
			}
			for l := range whole.Layers() {
				if m.Config.Recurrent(l) {
					continue
				}
				for h := range whole.LayerKVHeads(l) {
					a, b := parts.View(l)[h], whole.View(l)[h]
					if !slices.Equal(parts.Positions(l, h), whole.Positions(l, h)) {
						t.Fatalf("layer %d: positions %v, want %v", l, parts.Positions(l, h), whole.Positions(l, h))
					}
					compare.Close(t, "keys", a.K.Float64s(), b.K.Float64s(), 1e-9, compare.Floor(1e-9))
					compare.Close(t, "values", a.V.Float64s(), b.V.Float64s(), 1e-9, compare.Floor(1e-9))
				}
			}
			if name == "llama" {
				if err := r.Append(t.Context(), parts, model.TokenRows(tokens[:21])); !errors.Is(err, model.ErrContext) {
					t.Errorf("21 rows at 40 of 60: %v", err)
				}
			}
		})
	}
}
