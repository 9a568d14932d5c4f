package lora

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"glimpse/autodiff"
	"glimpse/kernels"
	"glimpse/losses"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// gradients runs one sample of the graph and copies out loss and gradients.
func gradients(t *testing.T, g *autodiff.Graph) (float64, [][]float64) {
	t.Helper()
	loss, err := g.Run()
	if err != nil {
		t.Fatal(err)
	}
	var grads [][]float64
	for i := range g.Parameters() {
		grad, err := g.Gradient(i)
		if err != nil {
			t.Fatal(err)
		}
		grads = append(grads, grad.Float64s())
	}
	return loss, grads
}

// TestGradientsAgainstFiniteDifferences checks every single parameter of a
// two-layer GQA model in float64, for both losses, with one compiled graph that
// serves several prompt lengths.
func TestGradientsAgainstFiniteDifferences(t *testing.T) {
	shapes := map[string]modeltest.Llama{
		"grouped": {Hidden: 8, Heads: 4, KVHeads: 2, HeadDim: 4, Intermediate: 10, Seed: 3},
		"single":  {Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 2, Intermediate: 6, Seed: 4},
	}
	for name, shape := range shapes {
		for _, loss := range losses.Losses.Names() {
			for _, rows := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s/%s/rows=%d", name, loss, rows), func(t *testing.T) {
					m := shape.Open(t, "reference64")
					checkGradients(t, m, loss, rows, []int{11, 1, 23})
				})
			}
		}
	}
}

func checkGradients(t *testing.T, m *model.Model, lossName string, rows int, lengths []int) {
	loss, err := losses.Losses.Lookup(lossName)
	if err != nil {
		t.Fatal(err)
	}
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
	g, sample := autodiff.New(m.Backend), new(autodiff.Sample)
	if err := g.Compile(g.Loss(a.Scores(g, sample), sample, loss.Func)); err != nil {
		t.Fatal(err)
	}
	checked, worst := 0, 0.0
	for _, n := range lengths {
		r, cache := m.NewRunner(), m.NewCache()
		if _, err := r.Prefill(context.Background(), cache, modeltest.Tokens(m, uint64(n), n), model.PrefillOptions{CacheOnly: true}); err != nil {
			t.Fatal(err)
		}
		*sample = m.SampleOf(cache, rows)
		for range m.Config.Layers {
			target := kernels.NewTensor(kernels.F64, m.Config.Heads, n)
			for i := range target.F64() {
				target.F64()[i] = math.Log(rng.Float64() * rng.Float64() / float64(n))
			}
			sample.Targets = append(sample.Targets, target)
		}
		_, grads := gradients(t, g)
		for i, p := range a.Parameters() {
			x := p.Tensor.F64()
			for j := range x {
				const step = 1e-5
				at := x[j]
				x[j] = at + step
				up, _ := g.Run()
				x[j] = at - step
				down, _ := g.Run()
				x[j] = at
				want, got := (up-down)/(2*step), grads[i][j]
				e := math.Abs(got-want) / (1e-4 + math.Abs(got) + math.Abs(want))
				if !(e <= 1e-5) {
					t.Fatalf("prompt %d: %s[%d]: gradient %.9g, finite difference %.9g, relative error %.2g, want at most 1e-5", n, p.Name, j, got, want, e)
				}
				worst = max(worst, e)
				checked++
			}
		}
	}
	t.Logf("%d gradients checked, worst relative error %.2g, %d nodes", checked, worst, g.Nodes())
}
