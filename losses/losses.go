package losses

import (
	"glimpse/internal/registry"
	"glimpse/kernels"
)

// Loss is one training objective.
type Loss struct {
	Doc string
	// Func is what the optimiser minimises: Scale times the loss as the paper defines it.
	// It adds the part of some heads to the F64 scalar loss, times a weight, and writes its gradient with
	// respect to the scores, dScores. scores and target are logarithms; all three are [heads,
	// entries] of the compute type. of is the number of heads of all layers, which the loss is a mean
	// over.
	Func func(b kernels.Backend, loss, dScores, scores, target *kernels.Tensor, of int, weight float64)
	// Scale is one constant for all samples, whatever their length.
	Scale float64
	// Answer is the weight of what the full cache says of the tokens that run after the prompt: KL(full cache ‖ evicted cache with the rows) of
	// the next token, mean over these. 0: nothing runs on the evicted cache.
	Answer float64
}

// Report converts the minimised value to the value as the paper defines it.
func (l Loss) Report(value float64) float64 { return value / l.Scale }

// Losses lists the objectives by name.
var Losses = registry.Registry[Loss]{Noun: "loss"}

func init() {
	Losses.Add("kl", Loss{
		Doc:   "KL(ground truth ‖ learned) of the normalised scores, mean over layers and heads (LookaheadKV, arXiv:2603.10899, eq. 5)",
		Func:  scoreKL,
		Scale: 1,
	})
	Losses.Add("distil", Loss{
		Doc:   "what the full cache says of the tokens after the prompt: KL of the next token (RestoreKV, arXiv:2608.01247); and kl of the scores",
		Func:  scoreKL,
		Scale: 1, Answer: 1,
	})
	Losses.Add("mse", Loss{
		Doc: "squared difference of the scores, mean over prompt columns, heads and layers (Judge Q, arXiv:2509.10798, eq. 5)",
		Func: func(b kernels.Backend, loss, dScores, scores, target *kernels.Tensor, of int, weight float64) {
			b.ScoreMSE(loss, dScores, scores, target, weight*mseScale/float64(of*scores.Width()))
		},
		Scale: mseScale,
	})
}

func scoreKL(b kernels.Backend, loss, dScores, scores, target *kernels.Tensor, of int, weight float64) {
	b.ScoreKL(loss, dScores, scores, target, weight/float64(of))
}

// mseScale keeps gradients of eq. 5 above AdamW's epsilon of 1e-8: a mean over 16,384
// columns leaves elements of about 1e-8 in an 8B model. It is a constant because a
// factor that grows with the prompt, such as the number of columns, gives long prompts
// more weight in a mixed batch than the paper does.
const mseScale = 1024
