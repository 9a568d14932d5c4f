package runner_test

import (
	"fmt"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestReferences: rows that are references have the queries that they have after the whole prompt, beside probes and without, and change neither
// logits nor what else is observed.
func TestReferences(t *testing.T) {
	for _, g := range modeltest.Goldens(t) {
		m, err := model.Open(g.Folder, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, tokens := runner.New(m), modeltest.Tokens(m, 3, 40)
		probe, first, second := model.TokenRows(modeltest.Tokens(m, 4, 6)), model.TokenRows(modeltest.Tokens(m, 5, 17)), model.TokenRows(modeltest.Tokens(m, 6, 3))
		pass := func(references ...model.QueryRows) (logits []float32, scores [][]float32, queries map[int][][]float32, cache *kvcache.Cache) {
			cache, queries = kvcache.New(m), make(map[int][][]float32)
			logits, err := r.Prefill(background, cache, tokens, runner.PrefillOptions{
				Capture: runner.Capture{Windows: []int{5}, Probes: []model.QueryRows{probe}, References: references},
				Observe: func(o *runner.Observation) error {
					for _, x := range slices.Concat(o.Windows, o.Probes) {
						scores = append(scores, x.Float32s())
					}
					if !m.Config.Recurrent(o.Layer) && len(o.References) != len(references)*len(m.Config.Readers(o.Layer)) {
						t.Errorf("%s: layer %d: queries of %d references, want %d of each layer that reads it", g.Name, o.Layer, len(o.References), len(references))
					}
					for _, q := range o.References {
						queries[o.Layer] = append(queries[o.Layer], q.Float32s())
					}
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			return logits, scores, queries, cache
		}
		want, wantScores, _, cache := pass()
		logits, scores, queries, _ := pass(first, second)
		if !slices.Equal(logits, want) || !slices.EqualFunc(scores, wantScores, slices.Equal) {
			t.Errorf("%s: references change what the pass gives", g.Name)
		}
		var wantQueries [2][]runner.QueryVectors
		for i, rows := range []model.QueryRows{first, second} {
			if wantQueries[i], err = r.Queries(background, cache, rows); err != nil {
				t.Fatal(err)
			}
		}
		for l, of := range queries {
			for at, q := range of {
				reader, i := m.Config.Readers(l)[at/2], at%2
				what := fmt.Sprintf("%s: layer %d, reference %d", g.Name, reader, i)
				compare.CloseToScale(t, what, q, wantQueries[i][reader].Rotated.Float32s(), 1e-4) // what is observed sums in another order
			}
		}
		if len(queries) == 0 {
			t.Errorf("%s: no references", g.Name)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
