package modeltest

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Training is what PyTorch computes in one LookaheadKV and one Judge Q step
// (lab/golden/golden_training.py).
type Training struct {
	Name            string  `json:"-"`     // of the step's files
	Model           string  `json:"model"` // of the golden folders
	Prompt          []int32 `json:"prompt"`
	Response        []int32 `json:"response"`
	Rows            int     `json:"rows"`
	Rank            int     `json:"rank"`
	Alpha           float64 `json:"alpha"`
	LookaheadKVLoss float64 `json:"lookaheadkv_loss"` // LookaheadKV, arXiv:2603.10899, eq. 5
	JudgeQLoss      float64 `json:"judgeq_loss"`      // Judge Q, arXiv:2509.10798, eq. 5

	Tensors map[string]Tensor `json:"-"`
}

// Trainings reads all golden training steps.
func Trainings(t testing.TB) []Training {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(Testdata(t), "golden_training", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden training steps (%v)", err)
	}
	var out []Training
	for _, path := range paths {
		var g Training
		ReadJSON(t, path, &g)
		g.Name = strings.TrimSuffix(filepath.Base(path), ".json")
		g.Tensors = ReadTensors(t, path[:len(path)-len("json")]+"safetensors")
		out = append(out, g)
	}
	return out
}

// Open opens the model on the named device and closes it with the test.
func (g *Training) Open(t testing.TB, device string) *model.Model {
	t.Helper()
	return open(t, device, func() (*model.Model, error) {
		return model.Open(filepath.Join(Testdata(t), "golden", g.Model), model.Options{Device: device})
	})
}

// Sample prepares the step: the prompt's cache and the targets [heads, prompt] of all
// layers, which are compared with PyTorch's.
func (g *Training) Sample(t testing.TB, m *model.Model) (cache *kvcache.Cache, targets []*kernels.Tensor) {
	t.Helper()
	ctx, r := context.Background(), runner.New(m)
	cache = kvcache.New(m)
	if _, err := r.Prefill(ctx, cache, g.Prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
		t.Fatal(err)
	}
	targets = make([]*kernels.Tensor, m.Config.Layers)
	err := r.Probe(ctx, cache, model.TokenRows(g.Response), false, func(o *runner.Observation) error {
		if m.Config.Recurrent(o.Layer) {
			return nil
		}
		target := m.Backend.Alloc(o.Probes[0].DType, o.Probes[0].Shape...)
		m.Backend.Copy(target, o.Probes[0])
		targets[o.Layer] = target
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	attending := 0
	for _, target := range targets {
		if target == nil {
			continue
		}
		p := target.Float32s()
		for i, v := range p {
			p[i] = float32(math.Exp(float64(v)))
		}
		g.Near(t, "target", p, g.Tensors["target"].At(attending), 1e-5)
		attending++
	}
	return cache, targets
}

// Near fails the test unless the RowError of got is at most bound.
func (g *Training) Near(t testing.TB, what string, got, want []float32, bound float64) {
	t.Helper()
	if e := RowError(got, want); !(e <= bound) {
		t.Errorf("%s: %s: error %.3g, want at most %.3g", g.Model, what, e, bound)
	}
}
