package runner_test

import (
	"context"
	"math"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// devices are the backends that every test of this package runs on.
var devices = kernels.Backends.Names()

func prefill(t *testing.T, m *model.Model, tokens []int32, chunk int) ([]float32, *kvcache.Cache) {
	t.Helper()
	cache := kvcache.New(m)
	logits, err := runner.New(m).Prefill(context.Background(), cache, tokens, runner.PrefillOptions{Chunk: chunk})
	if err != nil {
		t.Fatal(err)
	}
	return logits, cache
}

func TestPrefillInChunksAndTokenByToken(t *testing.T) {
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			m := modeltest.Llama{Layers: 3}.Open(t, device)
			tokens := modeltest.Tokens(m, 1, 37)
			want, whole := prefill(t, m, tokens, 0)
			for _, chunk := range []int{1, 5, 36} {
				got, cache := prefill(t, m, tokens, chunk)
				compare.CloseToScale(t, "logits", got, want, 1e-5)
				for l := range cache.Layers() {
					for h, kv := range cache.View(l) {
						compare.CloseToScale(t, "keys", kv.K.Float32s(), whole.View(l)[h].K.Float32s(), 1e-5)
					}
				}
			}
			cache, r := kvcache.New(m), runner.New(m)
			var got []float32
			for _, id := range tokens {
				var err error
				if got, err = r.Step(context.Background(), cache, id, runner.Capture{}, nil); err != nil {
					t.Fatal(err)
				}
			}
			compare.CloseToScale(t, "logits token by token", got, want, 1e-5)
		})
	}
}

// TestBackendsAgree compares every backend with the float64 one.
func TestBackendsAgree(t *testing.T) {
	shape := modeltest.Llama{Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 16, Intermediate: 80, Layers: 3}
	exact := shape.Open(t, "reference64")
	tokens := modeltest.Tokens(exact, 3, 150)
	want, _ := prefill(t, exact, tokens, 0)
	for _, device := range devices {
		got, _ := prefill(t, shape.Open(t, device), tokens, 64)
		compare.Close(t, device, got, want, 1e-4)
	}
}

// TestProbeLeavesNoTrace checks that rows after a prompt see it as response
// tokens would, and change nothing.
func TestProbeLeavesNoTrace(t *testing.T) {
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			m := modeltest.Llama{Layers: 3}.Open(t, device)
			prompt, response := modeltest.Tokens(m, 1, 21), modeltest.Tokens(m, 2, 5)
			plain, plainCache := prefill(t, m, prompt, 0)

			// During the prefill, in chunks, and afterwards.
			var during, after [][]float32
			r, cache := runner.New(m), kvcache.New(m)
			logits, err := r.Prefill(context.Background(), cache, prompt, runner.PrefillOptions{
				Chunk:   8,
				Capture: runner.Capture{Probes: []model.QueryRows{model.TokenRows(response)}},
				Observe: func(o *runner.Observation) error { during = append(during, o.Probes[0].Float32s()); return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			compare.CloseToScale(t, "logits", logits, plain, 1e-5)
			if err := r.Probe(context.Background(), plainCache, model.TokenRows(response), false, func(o *runner.Observation) error {
				after = append(after, o.Probes[0].Float32s())
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if cache.Bytes() != plainCache.Bytes() || cache.Next() != plainCache.Next() {
				t.Fatalf("cache of %d bytes at %d after a probe, want %d at %d", cache.Bytes(), cache.Next(), plainCache.Bytes(), plainCache.Next())
			}
			// The same rows as ordinary tokens, observed as the last window of a longer
			// prompt.
			_, err = r.Prefill(context.Background(), kvcache.New(m), append(append([]int32(nil), prompt...), response...), runner.PrefillOptions{
				Capture: runner.Capture{Windows: []int{len(response)}},
				Observe: func(o *runner.Observation) error {
					all, n := o.Windows[0].Float32s(), len(prompt)
					for h := range m.Config.Heads {
						want := all[h*(n+len(response)):][:n]
						compare.Close(t, "scores during prefill", during[o.Layer][h*n:][:n], want, 1e-5)
						compare.Close(t, "scores after prefill", after[o.Layer][h*n:][:n], want, 1e-5)
					}
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAllRowsScoresSumToOne: over all rows of a prompt, the mean probabilities
// of one head's columns sum to one, in one chunk or several.
func TestAllRowsScoresSumToOne(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Layers: 3}.Open(t, device)
		var first [][]float32
		for _, chunk := range []int{0, 7} {
			_, err := runner.New(m).Prefill(context.Background(), kvcache.New(m), modeltest.Tokens(m, 5, 30), runner.PrefillOptions{
				Chunk:   chunk,
				Capture: runner.Capture{AllRows: true},
				Observe: func(o *runner.Observation) error {
					scores := o.AllRows.Float32s()
					for h := range m.Config.Heads {
						sum := 0.0
						for _, s := range scores[h*30:][:30] {
							sum += math.Exp(float64(s))
						}
						if math.Abs(sum-1) > 1e-5 {
							t.Errorf("%s: chunk %d layer %d head %d: probabilities sum to %v", device, chunk, o.Layer, h, sum)
						}
					}
					if chunk == 0 {
						first = append(first, scores)
					} else {
						compare.Close(t, "scores", scores, first[o.Layer], 1e-5)
					}
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
