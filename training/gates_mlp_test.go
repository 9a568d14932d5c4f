package training

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/gates"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// learnedOf has seen contexts whose scores are f of what the attention reads; of four contexts one is watched and one held out.
func learnedOf(t *testing.T, m *model.Model, contexts int, f func(head int, row []float32) float64) *gates.Fit {
	t.Helper()
	fit, watched := gates.NewFit(m), new(inputs)
	fit.Keep(60, 1)
	for i := range contexts {
		_, err := runner.New(m).Prefill(t.Context(), kvcache.New(m), modeltest.Tokens(m, uint64(i), 80), runner.PrefillOptions{
			Capture: runner.Capture{Gates: []model.Gate{fit, watched}}, Observe: func(o *runner.Observation) error {
				scores := make([][]float32, m.Config.KVHeads)
				for h := range scores {
					for _, row := range watched.rows {
						scores[h] = append(scores[h], float32(math.Exp(f(h, row))))
					}
				}
				watched.rows = nil
				return fit.Observe(o.Layer, scores, []gates.Use{gates.Learn, gates.Learn, gates.Watch, gates.HoldOut}[i%4])
			}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return fit
}

// inputs is a gate that takes the rows and scores nothing.
type inputs struct{ rows [][]float32 }

func (*inputs) Weights(int) int { return 0 }

func (g *inputs) Score(m *model.Model, layer int, scores, h *kernels.Tensor, _ kernels.Allocator) {
	flat, in := h.Float32s(), h.Width()
	for ; len(flat) > 0; flat = flat[in:] {
		g.rows = append(g.rows, flat[:in])
	}
	m.On(layer).Fill(scores, 0)
}

// TestGateMLPBeginsLinear: without a step the gate is the linear one, whatever is between.
func TestGateMLPBeginsLinear(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 4}.Open(t, "reference64")
	fit := learnedOf(t, m, 4, func(h int, row []float32) float64 { return float64(row[h]) - 2*float64(row[5]) - 3 })
	linear, err := fit.Solve(1e-6)
	if err != nil {
		t.Fatal(err)
	}
	for l, want := range linear.Gates {
		g := newGateMLP(m, l, 7, want, rand.New(rand.NewPCG(1, 2)))
		g.mean, g.deviation = fit.Moments(l)
		g.beginLinear(want)
		score := func(gate checkpoints.GateLayer) []float64 {
			all := append(linear.Gates[:0:0], linear.Gates...)
			for i := range all {
				all[i] = gate
			}
			a, err := gates.Load(m, &checkpoints.Adapter{Kind: gates.Kind, Gates: all})
			if err != nil {
				t.Fatal(err)
			}
			rows := fit.Kept(l, gates.Learn)
			x, logs := make([]float32, 20*m.Config.Hidden), make([]float32, 20*m.Config.KVHeads)
			rows.Read(x, logs, []int{0, 3, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19})
			out := m.On(l).Alloc(kernels.F64, m.Config.KVHeads, 20)
			h := m.On(l).Alloc(kernels.F64, 20, m.Config.Hidden)
			kernels.Convert(h, kernels.FromF32(x, 20, m.Config.Hidden))
			a.Score(m, l, out, h, m.On(l))
			return out.Float64s()
		}
		compare.Close(t, fmt.Sprintf("layer %d", l), score(g.export()), score(want), 1e-5, compare.Floor(1))
	}
}

// TestGateMLPGradients: what a step of a gate minimises is the mean squared error of the logarithms, and its gradients are those
// of central differences.
func TestGateMLPGradients(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 4}.Open(t, "reference64")
	fit := learnedOf(t, m, 2, func(h int, row []float32) float64 { return float64(row[h]) })
	linear, err := fit.Solve(1e-3)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	g := newGateMLP(m, 1, 5, linear.Gates[1], rng)
	g.mean, g.deviation = fit.Moments(1)
	g.beginLinear(linear.Gates[1])
	for _, p := range g.params { // zeros would hide gradients
		for i := range p.Tensor.F64() {
			p.Tensor.F64()[i] += 0.1 * rng.NormFloat64()
		}
	}
	s, err := g.student(9)
	if err != nil {
		t.Fatal(err)
	}
	defer s.graph.Close()
	rows := fit.Kept(1, gates.Learn)
	s.loadRows(rows, []int{4, 0, 7, 3, 11, 5, 19, 2, 8})
	run := func() float64 {
		v, err := s.graph.Run()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	value, want := run(), 0.0
	x, logs := toRows(s.x), toRows(s.logs)
	p := g.params
	for r := range x {
		for h, log := range logs[r] {
			got := p[3].Tensor.F64()[h]
			for j := range 5 {
				z := p[1].Tensor.F64()[j]
				for i, v := range x[r] {
					z += p[0].Tensor.F64()[j*len(x[r])+i] * v
				}
				got += p[2].Tensor.F64()[h*5+j] * z * (1 + math.Erf(z/math.Sqrt2)) / 2
			}
			want += (got - log) * (got - log) / float64(len(x)*len(logs[r]))
		}
	}
	compare.Close(t, "loss", []float64{value}, []float64{want}, 1e-12)
	var grads [][]float64
	for i := range p {
		grad, err := s.graph.Gradient(i)
		if err != nil {
			t.Fatal(err)
		}
		grads = append(grads, grad.Float64s())
	}
	for i := range p {
		values := p[i].Tensor.F64()
		differences := make([]float64, len(values))
		for j, at := range values {
			const step = 1e-5
			values[j] = at + step
			up := run()
			values[j] = at - step
			differences[j] = (up - run()) / (2 * step)
			values[j] = at
		}
		compare.Close(t, p[i].Name, grads[i], differences, 1e-6)
	}
}

func toRows(t *kernels.Tensor) (out [][]float64) {
	for flat := t.Float64s(); len(flat) > 0; flat = flat[t.Width():] {
		out = append(out, flat[:t.Width()])
	}
	return out
}

// TestGateMLPs: MLPs learn of scores what linear gates cannot, of contexts that they have not seen, the same again by the same
// seed, and are read as an adapter.
func TestGateMLPs(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 4}.Open(t, "cpu")
	fit := learnedOf(t, m, 40, func(h int, row []float32) float64 {
		return float64(row[h]) + 2*math.Abs(float64(row[3+h]))
	})
	linear, err := fit.Solve(1e-4)
	if err != nil {
		t.Fatal(err)
	}
	layers := 0
	g := &GateMLPs{Hidden: 32, Steps: 300, Batch: 64, Rows: 60, LearningRate: 1e-2, Progress: func(int) { layers++ }}
	if err := g.check(m); err != nil {
		t.Fatal(err)
	}
	got, err := g.train(t.Context(), m, fit, linear.Gates, 1)
	if err != nil {
		t.Fatal(err)
	}
	again, err := g.train(t.Context(), m, fit, linear.Gates, 1)
	if err != nil {
		t.Fatal(err)
	}
	for l := range got.Gates {
		t.Logf("layer %d: linear %.3f, MLP %.3f", l, linear.Explained[l], got.Explained[l])
		if !(linear.Explained[l] < 0.9) || !(got.Explained[l] > linear.Explained[l]+0.1) {
			t.Errorf("layer %d: MLPs explain %.3f of the held-out variance, linear gates %.3f", l, got.Explained[l], linear.Explained[l])
		}
		for name, x := range got.Gates[l] {
			compare.Close(t, name, again.Gates[l][name].Data, x.Data, 0)
		}
	}
	if layers != 6 {
		t.Errorf("told %d times how many layers are done, want 6 times", layers)
	}
	for want, bad := range map[string]GateMLPs{
		"gates with 3 numbers between, want at least 4": {Hidden: 3, Steps: 1, Batch: 1, Rows: 1, LearningRate: 1},
		"steps: got 0, want at least 1":                 {Hidden: 4, Batch: 1, Rows: 1, LearningRate: 1},
		"learning rate: got 0, want above 0 to 10":      {Hidden: 4, Steps: 1, Batch: 1, Rows: 1},
		"rows of a context: got 0, want at least 1":     {Hidden: 4, Steps: 1, Batch: 1, LearningRate: 1},
		"rows of a step: got 0, want at least 1":        {Hidden: 4, Steps: 1, Rows: 1, LearningRate: 1},
	} {
		if err := bad.check(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
