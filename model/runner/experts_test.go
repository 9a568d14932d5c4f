package runner_test

import (
	"os"
	"testing"

	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestExpertsAreCounted: what a counter of memory says of a pass through experts is what it takes where all rows choose
// the same ones, and at least what it takes where they do not.
func TestExpertsAreCounted(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "mixtral").Folder), "cpu")
	const tokens = 6000 // which take more than the least memory of an arena
	m.Config.MaxPositions = tokens
	scratch := func(m *model.Model) int64 {
		r := runner.New(m)
		if _, err := r.Prefill(t.Context(), kvcache.New(m), modeltest.Tokens(m, 1, tokens), runner.PrefillOptions{Chunk: tokens}); err != nil {
			t.Fatal(err)
		}
		return r.ScratchBytes()
	}
	counted, _ := m.Counted()
	bound, spread := scratch(counted), scratch(m)
	for l := range m.Network.Layers {
		e := m.Network.Layers[l].Experts
		e.Router = m.Backend.Alloc(m.Backend.Compute(), e.Router.Shape...)
		m.Backend.Fill(e.Router, 0)
	}
	if alike := scratch(m); alike != bound || spread > bound || spread < bound/2 {
		t.Errorf("%d bytes counted, %d taken, %d by rows that choose alike", bound, spread, alike)
	}
}

// TestStepsReadChosenExperts: an expert that no row of a step has chosen is not read, and neither are those that only rows
// that fill up a batch would choose.
func TestStepsReadChosenExperts(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "qwen3-moe").Folder), "reference64")
	caches := []*kvcache.Cache{kvcache.New(m)}
	r := runner.New(m)
	if _, err := r.Prefill(t.Context(), caches[0], modeltest.Tokens(m, 1, 20), runner.PrefillOptions{}); err != nil {
		t.Fatal(err)
	}
	other, err := caches[0].Fork(nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.StepBatch(t.Context(), caches, []int32{7}, 1)
	if err != nil {
		t.Fatal(err)
	}
	// One expert at a time is taken away: as many as a row has of them are missed.
	missed := 0
	e := m.Network.Layers[0].Experts
	for i := range e.Each {
		whole := e.Each[i]
		e.Each[i] = model.Expert{}
		func() {
			defer func() {
				if recover() != nil {
					missed++
				}
			}()
			fork, err := other.Fork(nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runner.New(m).StepBatch(t.Context(), []*kvcache.Cache{fork}, []int32{7}, 4)
			if err != nil {
				t.Fatal(err)
			}
			if e := modeltest.RowError(got[0], want[0]); !(e <= 1e-5) {
				t.Errorf("without expert %d: error %.2g", i, e)
			}
		}()
		e.Each[i] = whole
	}
	if missed != e.TopK {
		t.Errorf("%d experts of a layer were missed, want %d", missed, e.TopK)
	}
}
