package lora

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"glimpse/autodiff"
	"glimpse/checkpoints"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/losses"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestStepAgainstPyTorch compares loss, scores and the gradient of every parameter
// of one LookaheadKV step with a straightforward implementation: two full passes
// of transformers and autograd through everything.
func TestStepAgainstPyTorch(t *testing.T) {
	for _, g := range modeltest.Trainings(t) {
		for _, device := range kernels.Backends.Names() {
			t.Run(g.Model+"/"+device, func(t *testing.T) {
				m := g.Open(t, device)
				a, err := Load(m, stored(&g))
				if err != nil {
					t.Fatal(err)
				}
				for l, scores := range probeScores(t, m, a, g.Prompt) {
					for i, s := range scores {
						scores[i] = float32(math.Exp(float64(s)))
					}
					g.Near(t, "scores", scores, g.Tensors["lookaheadkv.scores"].At(l), 1e-5)
				}
				loss, err := losses.Losses.Lookup("kl")
				if err != nil {
					t.Fatal(err)
				}
				graph, sample := autodiff.New(m.Backend), g.Sample(t, m)
				defer graph.Close()
				if err := graph.Compile(graph.Loss(a.Scores(graph, &sample), &sample, loss.Func)); err != nil {
					t.Fatal(err)
				}
				value, grads := gradients(t, graph)
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
				if want := 1 + 2*(7*(m.Config.Layers-1)+2); compared != want {
					t.Errorf("%d gradients compared, want %d", compared, want)
				}
				t.Logf("%d gradients, worst error %.2g", compared, worst)
			})
		}
	}
}

// stored is the adapter of a golden step.
func stored(g *modeltest.Training) *checkpoints.Adapter {
	matrix := func(name string) checkpoints.Matrix {
		t := g.Tensors[name]
		return checkpoints.Matrix{Rows: t.Shape[0], Cols: t.Shape[1], Data: t.Values}
	}
	a := &checkpoints.Adapter{Kind: Kind, Embeddings: matrix("embeddings"), Rank: g.Rank, Alpha: g.Alpha, LoRA: make(map[checkpoints.LoRAKey]checkpoints.LoRAFactors)}
	for name := range g.Tensors {
		if at, ok := strings.CutSuffix(name, ".lora_A"); ok && strings.HasPrefix(at, "layers.") {
			parts := strings.Split(at, ".")
			key := checkpoints.LoRAKey{Layer: int(parts[1][0] - '0'), Module: parts[2]}
			a.LoRA[key] = checkpoints.LoRAFactors{A: matrix(name), B: matrix(at + ".lora_B")}
		}
	}
	return a
}

// TestGradientsOfEveryFamily checks the gradient of every parameter of an adapter
// on the golden model of every family, in float64, against central differences:
// LayerNorm and GELU, parallel blocks and row ranges of a fused weight, norms of
// heads, biases, sliding windows.
func TestGradientsOfEveryFamily(t *testing.T) {
	for _, g := range modeltest.Goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			m, err := model.Open(g.Folder, model.Options{Device: "reference64"})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			checkDirections(t, m, g.Prompts[len(g.Prompts)-1].IDs)
		})
	}
}

// checkDirections compares the derivative along a random direction of every
// parameter tensor: all its elements are in it, at the price of two runs.
func checkDirections(t *testing.T, m *model.Model, prompt []int32) {
	const rows = 3
	a, err := New(m, model.AdapterConfig{Rows: rows, Rank: 2, Alpha: 4, Modules: model.Modules, InitToken: 2, InitNoise: 0.5, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for _, p := range a.Parameters()[1:] { // B = 0 would hide the gradients of A
		for i, v := range p.Tensor.F64() {
			p.Tensor.F64()[i] = v + 0.2*rng.NormFloat64()
		}
	}
	r, cache := m.NewRunner(), m.NewCache()
	if _, err := r.Prefill(context.Background(), cache, prompt, model.PrefillOptions{CacheOnly: true}); err != nil {
		t.Fatal(err)
	}
	sample := m.SampleOf(cache, rows)
	// The response that starts where the rows do sees what they see.
	err = r.Probe(context.Background(), cache, model.TokenRows(prompt[:rows+2]), func(o *model.Observation) error {
		target := kernels.NewTensor(o.Probes[0].DType, o.Probes[0].Shape...)
		m.Backend.Copy(target, o.Probes[0])
		sample.Targets = append(sample.Targets, target)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	loss, err := losses.Losses.Lookup("kl")
	if err != nil {
		t.Fatal(err)
	}
	g := autodiff.New(m.Backend)
	defer g.Close()
	if err := g.Compile(g.Loss(a.Scores(g, &sample), &sample, loss.Func)); err != nil {
		t.Fatal(err)
	}
	value, grads := gradients(t, g)
	if table := m.RowsAfter(cache.Next(), rows).RoPE; table != sample.RoPE {
		t.Errorf("rows after a prompt of %d tokens rotate by other angles than rows after its cache", len(prompt))
	}
	// The graph is the twin of a probe's pass.
	sum := kernels.NewTensor(kernels.F64)
	err = r.Probe(context.Background(), cache, a, func(o *model.Observation) error {
		scores := o.Probes[0]
		loss.Func(m.Backend, sum, m.Backend.Alloc(scores.DType, scores.Shape...), scores, sample.Targets[o.Layer], m.Config.Layers)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	compare.Close(t, "loss", []float64{value}, sum.Float64s(), 1e-9)
	worst := 0.0
	for i, p := range a.Parameters() {
		x := p.Tensor.F64()
		at, direction, want, squares := slices.Clone(x), make([]float64, len(x)), 0.0, 0.0
		for j := range x {
			direction[j] = rng.NormFloat64()
			want += direction[j] * grads[i][j]
			squares += x[j] * x[j]
		}
		step := 1e-5 * min(1, math.Sqrt(squares/float64(len(x)))) // small beside the parameters
		along := func(h float64) float64 {
			for j := range x {
				x[j] = at[j] + h*direction[j]
			}
			value, err := g.Run()
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
		got := (along(step) - along(-step)) / (2 * step)
		copy(x, at)
		e := math.Abs(got-want) / (1e-4 + math.Abs(got) + math.Abs(want))
		if !(e <= 1e-5) {
			t.Errorf("%s: finite difference %.9g, gradient %.9g, relative error %.2g", p.Name, got, want, e)
		}
		worst = max(worst, e)
	}
	t.Logf("%d parameters, worst relative error %.2g", len(grads), worst)
}
