package runner_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestRowsBeyondTheLastHolder: of a prompt only the rows that are read go through the layers after the last one with keys and values of
// its own. Logits have the bits that they have when all rows go, and so has the cache where nothing but it is wanted.
func TestRowsBeyondTheLastHolder(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "gemma4-e2b").Folder), "cpu")
	if got := m.Config.LastHolder(); got != 2 {
		t.Fatalf("layer %d is the last with keys and values, want 2", got)
	}
	nothing := func(*runner.Observation) error { return nil }
	for _, n := range []int{2, 16, 17, 40, 64, 90, 201} {
		tokens := modeltest.Tokens(m, uint64(n), n)
		for _, chunk := range []int{0, 64} {
			pass := func(opt runner.PrefillOptions) ([]float32, *kvcache.Cache) {
				opt.Chunk = chunk
				if opt.CacheOnly {
					opt.Observe = nil
				} else {
					opt.Observe = nothing
				}
				cache := kvcache.New(m)
				logits, err := runner.New(m).Prefill(background, cache, tokens, opt)
				if err != nil {
					t.Fatal(err)
				}
				return logits, cache
			}
			for name, opt := range map[string]runner.PrefillOptions{
				"nothing": {}, "windows": {Capture: runner.Capture{Windows: []int{1, 30}}}, "a wide window": {Capture: runner.Capture{Windows: []int{130}}},
				"probes": {Capture: runner.Capture{Probes: []model.QueryRows{model.TokenRows{1, 2, 3}}}}, "the cache alone": {CacheOnly: true},
			} {
				what := fmt.Sprintf("%d tokens in chunks of %d: %s", n, chunk, name)
				got, cache := pass(opt)
				all := runner.PrefillOptions{Capture: opt.Capture.Merge(runner.Capture{AllRows: true})} // which takes all rows through
				want, whole := pass(all)
				keys, pos := contents(whole)
				if !opt.CacheOnly && !slices.Equal(got, want) {
					t.Errorf("%s: other logits than with all rows", what)
				}
				gotKeys, gotPos := contents(cache)
				if !slices.EqualFunc(gotPos, pos, slices.Equal) || !slices.EqualFunc(gotKeys, keys, slices.Equal) || cache.Bytes() != whole.Bytes() {
					t.Errorf("%s: another cache than with all rows", what)
				}
			}
		}
	}
}
