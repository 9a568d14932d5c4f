package training

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"glimpse/kernels"
	"glimpse/lora"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestGraphAndRuntimeAgree: what is trained is what is run. The loss of the graph
// against the scores of the runtime as targets is zero.
func TestGraphAndRuntimeAgree(t *testing.T) {
	for _, device := range kernels.Backends.Names() {
		t.Run(device, func(t *testing.T) {
			m := modeltest.Llama{Layers: 3}.Open(t, device)
			a, err := lora.New(m, model.AdapterConfig{Rows: 5, Rank: 3, Alpha: 6, Modules: model.Modules, InitToken: -1, InitNoise: 1, Seed: 4})
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(6, 6))
			for _, p := range a.Parameters() { // random as after training, B too
				values := make([]float64, p.Tensor.Len())
				for i := range values {
					values[i] = 0.3 * rng.NormFloat64()
				}
				kernels.Convert(p.Tensor, kernels.FromF64(values, p.Tensor.Shape...))
			}
			prompt := modeltest.Tokens(m, 1, 19)
			r, cache := runner.New(m), kvcache.New(m)
			if _, err := r.Prefill(context.Background(), cache, prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
				t.Fatal(err)
			}
			var targets []*kernels.Tensor
			for _, s := range probeScores(t, m, a, prompt) {
				target := m.Backend.Alloc(m.Backend.Compute(), m.Config.Heads, len(prompt))
				kernels.Convert(target, kernels.FromF32(s, m.Config.Heads, len(prompt)))
				targets = append(targets, target)
			}
			s, _ := newStudentOf(t, m, a, "mse", nil)
			got, err := s.runSample(sampleAfter(s, m, cache, targets))
			if err != nil {
				t.Fatal(err)
			}
			if !(got < 1e-9) {
				t.Fatalf("squared difference of the graph's scores and the runtime's: %v, want 0", got)
			}
		})
	}
}

// hidden is an adapter that keeps some of its parameters to itself.
type hidden struct {
	model.RowsAdapter
	from, to int
}

func (a hidden) Parameters() []model.Parameter { return a.RowsAdapter.Parameters()[a.from:a.to] }

// TestAdaptersOfAnotherForm: an adapter whose rows are not the first parameter, or whose
// low-rank factors are none, is refused and not trained in part.
func TestAdaptersOfAnotherForm(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "reference")
	a, err := lora.New(m, model.AdapterConfig{Rows: 3, Rank: 2, Alpha: 4, Modules: model.Modules})
	if err != nil {
		t.Fatal(err)
	}
	n := len(a.Parameters())
	for want, h := range map[string]hidden{
		"first parameter: want the rows [3 16]":                    {a, 1, n},
		"layer 0: q_proj: low-rank factors that are no parameters": {a, 0, 1},
		"layer 1: k_proj: low-rank factors that are no parameters": {a, 0, n - 1},
	} {
		if _, err := newStudent(m, h, objective{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
