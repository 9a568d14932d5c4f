package softtokens

import (
	"context"
	"math"
	"slices"
	"testing"

	"glimpse/autodiff"
	"glimpse/checkpoints"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/losses"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestStepAgainstPyTorch compares loss, scores and gradient of one Judge Q step
// with a straightforward implementation: two full passes of transformers and
// autograd through everything.
func TestStepAgainstPyTorch(t *testing.T) {
	for _, g := range modeltest.Trainings(t) {
		for _, device := range kernels.Backends.Names() {
			t.Run(g.Model+"/"+device, func(t *testing.T) {
				m, e := g.Open(t, device), g.Tensors["embeddings"]
				a, err := Load(m, &checkpoints.Adapter{Kind: Kind, Embeddings: checkpoints.Matrix{Rows: e.Shape[0], Cols: e.Shape[1], Data: e.Values}})
				if err != nil {
					t.Fatal(err)
				}
				_, err = m.NewRunner().Prefill(context.Background(), m.NewCache(), g.Prompt, model.PrefillOptions{
					Capture: model.Capture{Probes: []model.Prober{a}},
					Observe: func(o *model.Observation) error {
						scores := o.Probes[0].Float32s()
						for i, s := range scores {
							scores[i] = float32(math.Exp(float64(s)))
						}
						g.Near(t, "scores", scores, g.Tensors["judgeq.scores"].At(o.Layer), 1e-5)
						return nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				loss, err := losses.Losses.Lookup("mse")
				if err != nil {
					t.Fatal(err)
				}
				graph, sample := autodiff.New(m.Backend), g.Sample(t, m)
				defer graph.Close()
				if err := graph.Compile(graph.Loss(a.Scores(graph, &sample), &sample, loss.Func)); err != nil {
					t.Fatal(err)
				}
				value, err := graph.Run()
				if err != nil {
					t.Fatal(err)
				}
				compare.Close(t, "loss", []float64{loss.Report(value)}, []float64{g.JudgeQLoss}, 1e-5, compare.Floor(1e-6))
				grad, err := graph.Gradient(0)
				if err != nil {
					t.Fatal(err)
				}
				// The file holds the gradient of eq. 5 times the number of columns.
				want := slices.Clone(g.Tensors["judgeq.grad.embeddings"].Values)
				for i := range want {
					want[i] *= float32(loss.Scale / float64(len(g.Prompt)))
				}
				g.Near(t, "gradient of embeddings", grad.Float32s(), want, 1e-4)
			})
		}
	}
}
