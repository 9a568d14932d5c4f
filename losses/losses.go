package losses

import (
	"glimpse/autodiff"
	"glimpse/internal/registry"
	"glimpse/kernels"
)

// Loss is one training objective.
type Loss struct {
	Doc string
	// Func is what the optimiser minimises.
	Func autodiff.LossFunc
	// Report converts the minimised value, at a prompt of n entries, to the value as
	// the paper defines it.
	Report func(value float64, n int) float64
}

// Losses lists the objectives by name.
var Losses = registry.Registry[Loss]{Noun: "loss"}

func init() {
	Losses.Add("kl", Loss{
		Doc:    "KL(ground truth ‖ learned) of the normalised scores, mean over layers and heads (lookaheadkv.txt eq. 5)",
		Func:   kl,
		Report: func(v float64, _ int) float64 { return v },
	})
	Losses.Add("mse", Loss{
		Doc:    "squared difference of the scores, mean over prompt columns, heads and layers (judgeq.txt eq. 5)",
		Func:   mse,
		Report: func(v float64, n int) float64 { return v / float64(n) },
	})
}

func kl(b kernels.Backend, loss, dScores, scores, target *kernels.Tensor, layers int) {
	b.ScoreKL(loss, dScores, scores, target, 1/float64(layers*scores.Dim0()))
}

// mse minimises eq. 5 times the number of columns: a mean over thousands of
// columns would make gradients so small that they sink under AdamW's epsilon.
func mse(b kernels.Backend, loss, dScores, scores, target *kernels.Tensor, layers int) {
	b.ScoreMSE(loss, dScores, scores, target, 1/float64(layers*scores.Dim0()))
}
