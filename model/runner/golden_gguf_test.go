package runner_test

import (
	"context"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
	"path/filepath"
	"testing"
)

// TestGGUFAgainstTransformers compares the logits of GGUF files, which llama.cpp's converter wrote,
// with those that transformers computes with the models before (lab/golden/gguf_fixtures.py).
func TestGGUFAgainstTransformers(t *testing.T) {
	var golden struct {
		Models map[string][]struct {
			IDs    []int32
			Logits []float32
		}
	}
	testdata := filepath.Join("..", "gguf", "testdata")
	modeltest.ReadJSON(t, filepath.Join(testdata, "golden.json"), &golden)
	if len(golden.Models) < 11 {
		t.Fatalf("%d models, want at least 11", len(golden.Models))
	}
	for name, want := range golden.Models {
		t.Run(name, func(t *testing.T) {
			m, err := model.Open(filepath.Join(testdata, name+".gguf"), model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if len(m.Notes) > 0 {
				t.Errorf("notes %q, want none", m.Notes)
			}
			r, logits := runner.New(m), worst{bound: 1e-5}
			for _, p := range want {
				got, err := r.Prefill(context.Background(), kvcache.New(m), p.IDs, runner.PrefillOptions{})
				if err != nil {
					t.Fatal(err)
				}
				logits.see(t, modeltest.RowError(got, p.Logits), "%d tokens", len(p.IDs))
			}
			t.Logf("logits %.2g", logits.value)
		})
	}
}
