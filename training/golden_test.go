package training

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/lora"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
	"glimpse/softtokens"
)

// probeScores runs the rows as the eviction runtime does: logarithms [heads, prompt] per
// layer that has keys and values.
func probeScores(t *testing.T, m *model.Model, a model.QueryRows, prompt []int32) [][]float32 {
	t.Helper()
	out := make([][]float32, m.Config.Layers)
	_, err := runner.New(m).Prefill(context.Background(), kvcache.New(m), prompt, runner.PrefillOptions{
		Capture: runner.Capture{Probes: []model.QueryRows{a}},
		Observe: func(o *runner.Observation) error {
			if !m.Config.Recurrent(o.Layer) {
				out[o.Layer] = o.Probes[0].Float32s()
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(out, func(scores []float32) bool { return scores == nil })
}

// nearScores compares the scores of an adapter's rows with PyTorch's.
func nearScores(t *testing.T, g *modeltest.Training, m *model.Model, a model.QueryRows, name string) {
	t.Helper()
	for l, scores := range probeScores(t, m, a, g.Prompt) {
		for i, s := range scores {
			scores[i] = float32(math.Exp(float64(s)))
		}
		g.Near(t, "scores", scores, g.Tensors[name].At(l), 1e-5)
	}
}

// TestLookaheadKVStepAgainstPyTorch compares loss, scores and the gradient of every parameter
// of one LookaheadKV step with a straightforward implementation: two full passes
// of transformers and autograd through everything.
func TestLookaheadKVStepAgainstPyTorch(t *testing.T) {
	for _, g := range modeltest.Trainings(t) {
		for _, device := range kernels.Backends.Names() {
			if device == "cuda" && slices.Contains(modeltest.OnProcessorsAlone, g.Model) {
				continue
			}
			t.Run(g.Name+"/"+device, func(t *testing.T) {
				m := g.Open(t, device)
				a, err := lora.Load(m, stored(t, &g))
				if err != nil {
					t.Fatal(err)
				}
				nearScores(t, &g, m, a, "lookaheadkv.scores")
				s, loss := newStudentOf(t, m, a, "kl", nil)
				cache, targets := g.Sample(t, m)
				value, grads := gradients(t, s, sampleAfter(s, m, cache, targets))
				compare.Close(t, "loss", []float64{loss.Report(value)}, []float64{g.LookaheadKVLoss}, 1e-5)
				compared, worst := 0, 0.0
				for i, p := range a.Parameters() {
					name := strings.TrimPrefix(p.Name, "lookahead_")
					want, ok := g.Tensors["lookaheadkv.grad."+name]
					if !ok {
						t.Errorf("PyTorch has no gradient of %s", name)
						continue
					}
					got := make([]float32, len(grads[i]))
					for j, v := range grads[i] {
						got[j] = float32(v)
					}
					g.Near(t, "gradient of "+name, got, want.Values, 1e-4)
					compared, worst = compared+1, max(worst, modeltest.RowError(got, want.Values))
				}
				want, modules := 1, model.Modules
				if strings.HasSuffix(g.Name, "-experts") {
					modules = model.ExpertModules
				}
				for l := range m.Config.Layers {
					for _, module := range modules {
						if count, _, _, _ := m.Network.Layers[l].Factors(module); count > 0 && module.ReachesScores(l, m.Config.ScoredLayers()) {
							want += 2
						}
					}
				}
				if compared != want {
					t.Errorf("%d gradients compared, want %d", compared, want)
				}
				t.Logf("%d gradients, worst error %.2g", compared, worst)
			})
		}
	}
}

// stored is the adapter of a golden step.
func stored(t *testing.T, g *modeltest.Training) *checkpoints.Adapter {
	matrix := func(name string) checkpoints.Matrix {
		t := g.Tensors[name]
		return checkpoints.Matrix{Rows: t.Shape[0], Cols: t.Shape[1], Data: t.Values}
	}
	parameters := map[string]checkpoints.Matrix{"lookahead_embeddings": matrix("embeddings")}
	for name := range g.Tensors {
		if strings.HasPrefix(name, "layers.") {
			parameters[name] = matrix(name)
		}
	}
	kind, err := model.RowsKinds.Lookup(lora.Kind)
	if err != nil {
		t.Fatal(err)
	}
	a, err := kind.Stored(model.AdapterConfig{Alpha: g.Alpha}, parameters)
	if err != nil {
		t.Fatal(err)
	}
	if a.Rank != g.Rank {
		t.Fatalf("factors of rank %d, want %d", a.Rank, g.Rank)
	}
	return a
}

// TestJudgeQStepAgainstPyTorch is the same of one Judge Q step.
func TestJudgeQStepAgainstPyTorch(t *testing.T) {
	for _, g := range modeltest.Trainings(t) {
		for _, device := range kernels.Backends.Names() {
			if device == "cuda" && slices.Contains(modeltest.OnProcessorsAlone, g.Model) {
				continue
			}
			t.Run(g.Name+"/"+device, func(t *testing.T) {
				m, e := g.Open(t, device), g.Tensors["embeddings"]
				a, err := softtokens.Load(m, &checkpoints.Adapter{Kind: softtokens.Kind, Embeddings: checkpoints.Matrix{Rows: e.Shape[0], Cols: e.Shape[1], Data: e.Values}})
				if err != nil {
					t.Fatal(err)
				}
				nearScores(t, &g, m, a, "judgeq.scores")
				s, loss := newStudentOf(t, m, a, "mse", nil)
				cache, targets := g.Sample(t, m)
				value, grads := gradients(t, s, sampleAfter(s, m, cache, targets))
				compare.Close(t, "loss", []float64{loss.Report(value)}, []float64{g.JudgeQLoss}, 1e-5, compare.Floor(1e-6))
				if len(grads) != 1 {
					t.Fatalf("%d gradients, want that of the soft tokens alone", len(grads))
				}
				got := make([]float32, len(grads[0]))
				for i, v := range grads[0] {
					got[i] = float32(v)
				}
				// The file holds the gradient of eq. 5 times the number of columns.
				want := slices.Clone(g.Tensors["judgeq.grad.embeddings"].Values)
				for i := range want {
					want[i] *= float32(loss.Scale / float64(len(g.Prompt)))
				}
				g.Near(t, "gradient of embeddings", got, want, 1e-4)
			})
		}
	}
}
