package runner_test

import (
	"path/filepath"
	"slices"
	"testing"

	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestObserversChangeNoLogits: what a prompt gives has the same bits whatever is observed of it, on float32 weights and on
// blocks, whose products differ between one row and many.
func TestObserversChangeNoLogits(t *testing.T) {
	models := map[string]*model.Model{"float32": modeltest.Llama{Hidden: 64, HeadDim: 16, Intermediate: 96, MaxPositions: 200}.Open(t, "cpu")}
	testdata := filepath.Join("..", "gguf", "testdata")
	var golden struct{ Models map[string]any }
	modeltest.ReadJSON(t, filepath.Join(testdata, "golden.json"), &golden)
	for name := range golden.Models {
		m, err := model.Open(filepath.Join(testdata, name+".gguf"), model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		models[name] = m
	}
	for name, m := range models {
		for _, n := range []int{5, 20, 40} {
			prefill := func(c runner.Capture) []float32 {
				opt := runner.PrefillOptions{Chunk: 32, Capture: c, Observe: func(*runner.Observation) error { return nil }}
				logits, err := runner.New(m).Prefill(background, kvcache.New(m), modeltest.Tokens(m, 3, n), opt)
				if err != nil {
					t.Fatal(err)
				}
				return logits
			}
			want := prefill(runner.Capture{})
			for _, c := range []runner.Capture{
				{Windows: []int{1}}, {Windows: []int{16}}, {Windows: []int{7, 32}}, {PeakWindows: []int{100}}, {AllRows: true}, {Queries: true}, {Squares: true},
				{Probes: []model.QueryRows{model.TokenRows{1, 2, 3}}, Windows: []int{20}},
			} {
				if got := prefill(c); !slices.Equal(got, want) {
					t.Errorf("%s: the logits of %d tokens change when %+v is observed", name, n, c)
				}
			}
		}
	}
}
