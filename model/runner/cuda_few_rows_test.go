//go:build gpu && linux && (amd64 || arm64)

package runner_test

import (
	"maps"
	"os"
	"testing"

	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestCUDAStepLaunches: a decoding step takes the launches of modeltest.LaunchBudget,
// whatever biases, norms of heads and windows the layer has and however many sequences there
// are.
func TestCUDAStepLaunches(t *testing.T) {
	modeltest.NeedCUDA(t)
	budget := maps.Clone(modeltest.LaunchBudget.Layer)
	budget["longer"] = modeltest.LaunchBudget.LongerLayer
	for name, each := range budget {
		t.Run(name, func(t *testing.T) {
			var m *model.Model
			long, lengths := name == "longer", []int{9, 5}
			if long {
				m, lengths[1] = modeltest.Llama{Hidden: 16, Heads: 2, KVHeads: 1, HeadDim: 8, Intermediate: 16, Layers: 2, MaxPositions: 512, Seed: 3}.Open(t, "cuda"), 300
			} else {
				m = modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, name).Folder), "cuda")
			}
			r := runner.New(m)
			var caches []*kvcache.Cache
			for _, n := range lengths {
				cache := kvcache.New(m)
				if _, err := r.Prefill(background, cache, modeltest.Tokens(m, 1, n), runner.PrefillOptions{}); err != nil {
					t.Fatal(err)
				}
				caches = append(caches, cache)
			}
			for sequences, rows := range map[int]int{1: 1, 2: 3} {
				if long && sequences == 1 {
					continue
				}
				r = runner.New(m)
				for range 2 { // the first one is not recorded
					if _, err := r.StepBatch(background, caches[:sequences], modeltest.Tokens(m, 1, 9)[:sequences], rows); err != nil {
						t.Fatal(err)
					}
				}
				want := modeltest.LaunchBudget.Around + m.Config.Layers*each
				if sequences < rows { // rows without a sequence have no attention
					want += m.Config.Layers
				}
				if got := r.RecordedOperations(); got != want {
					t.Errorf("%d sequences: %d launches for %d layers, want %d", sequences, got, m.Config.Layers, want)
				}
			}
		})
	}
}
