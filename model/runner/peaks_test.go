package runner_test

import (
	"context"
	"math"
	"testing"

	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestPeaksAreTheLargestRows: what PeakWindows and PeakProbes observe in one pass is
// the largest of what single rows observe one after the other, also where a sliding
// window hides entries.
func TestPeaksAreTheLargestRows(t *testing.T) {
	ctx := context.Background()
	for _, window := range []int{0, 7} {
		m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 3}.Open(t, "reference64")
		modeltest.SetWindows(m, window, 0, window)
		const n, last = 30, 5
		tokens, draft := modeltest.Tokens(m, 1, n), modeltest.Tokens(m, 2, 4)

		// [layer][head·n + entry] of rows one at a time: those of the window, then the
		// draft's.
		largest := func(rows []int32, from int) [][]float64 {
			r, cache := runner.New(m), kvcache.New(m)
			all := append(append([]int32(nil), tokens...), rows...)
			if _, err := r.Prefill(ctx, cache, all[:from], runner.PrefillOptions{}); err != nil {
				t.Fatal(err)
			}
			out := make([][]float64, m.Config.Layers)
			for _, id := range all[from:] {
				_, err := r.Step(ctx, cache, id, runner.Capture{Windows: []int{1}}, func(o *runner.Observation) error {
					if out[o.Layer] == nil {
						out[o.Layer] = make([]float64, m.Config.Heads*n)
					}
					seen, width := o.Windows[0].Float64s(), o.Windows[0].Width()
					for h := range m.Config.Heads {
						for j := range min(n, o.Cache.Entries(o.Layer, 0)) {
							out[o.Layer][h*n+j] = max(out[o.Layer][h*n+j], math.Exp(seen[h*width+j]))
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			return out
		}
		wantWindow, wantProbe := largest(nil, n-last), largest(draft, n)

		for _, chunk := range []int{0, 8} {
			capture := runner.Capture{PeakWindows: []int{last}, PeakProbes: []model.QueryRows{model.TokenRows(draft)}, Windows: []int{last}}
			_, err := runner.New(m).Prefill(ctx, kvcache.New(m), tokens, runner.PrefillOptions{Chunk: chunk, Capture: capture, Observe: func(o *runner.Observation) error {
				for what, c := range map[string]struct{ got, want []float64 }{
					"window": {o.PeakWindows[0].Float64s(), wantWindow[o.Layer]},
					"probe":  {o.PeakProbes[0].Float64s(), wantProbe[o.Layer]},
				} {
					for i := range c.got {
						c.got[i] = math.Exp(c.got[i])
					}
					compare.Close(t, what, c.got, c.want, 1e-9, compare.Floor(1e-9))
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSameVocabulary: tokens decide where both models have a tokenizer, the number
// of embeddings where one has none.
func TestSameVocabulary(t *testing.T) {
	builtin, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer builtin.Close()
	cut, err := builtin.Cut(2)
	if err != nil {
		t.Fatal(err)
	}
	alike, other := modeltest.Llama{Vocab: 480}.Open(t, "cpu"), modeltest.Llama{Vocab: 481}.Open(t, "cpu")
	for _, c := range []struct {
		name string
		a, b *model.Model
		same bool
	}{
		{"itself", builtin, builtin, true},
		{"a cut of itself", builtin, cut, true},
		{"no tokenizer, as many tokens", builtin, alike, true},
		{"no tokenizer, one token more", builtin, other, false},
		{"neither has one", alike, other, false},
	} {
		if err := c.a.SameVocabulary(c.b); (err == nil) != c.same {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if cut.Config.Layers != 2 || builtin.Config.Layers != 8 || len(cut.Network.Layers) != 2 {
		t.Errorf("cut to %d of %d layers", cut.Config.Layers, builtin.Config.Layers)
	}
	cut.Close() // which leaves the whole model usable
	if _, err := runner.New(builtin).Prefill(context.Background(), kvcache.New(builtin), []int32{1, 2}, runner.PrefillOptions{}); err != nil {
		t.Error(err)
	}
}
