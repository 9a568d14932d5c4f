package training

import (
	"fmt"
	"math"

	"glimpse/autodiff"
	"glimpse/kernels"
	"glimpse/model"
)

// optimizer is AdamW of some parameters (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2).
type optimizer struct {
	params []model.Parameter
	sum    []*kernels.Tensor // gradients of the current batch
	m, v   []*kernels.Tensor // moments
	runs   []parameterRun
}

// parameterRun is parameters [from, to), which follow each other on a device.
type parameterRun struct {
	on       kernels.Backend
	from, to int
}

// newOptimizer begins with moments of zero.
func newOptimizer(m *model.Model, params []model.Parameter) *optimizer {
	o := &optimizer{params: params}
	for i, p := range params {
		on, last := m.On(p.Layer), len(o.runs)-1
		if last < 0 || o.runs[last].on != on {
			o.runs = append(o.runs, parameterRun{on, i, i + 1})
		} else {
			o.runs[last].to = i + 1
		}
		for _, dst := range []*[]*kernels.Tensor{&o.sum, &o.m, &o.v} {
			z := on.Alloc(p.Tensor.DType, p.Tensor.Shape...)
			on.Fill(z, 0)
			*dst = append(*dst, z)
		}
	}
	return o
}

// gradients are the gradients of what a graph has run, whose parameters are the optimizer's. A norm that is not finite is
// said in words.
func (o *optimizer) gradients(g *autodiff.Graph) (grads []*kernels.Tensor, bad string, err error) {
	grads = make([]*kernels.Tensor, len(o.sum))
	for j := range grads {
		if grads[j], err = g.Gradient(j); err != nil {
			return nil, "", err
		}
	}
	if squares := o.squares(grads); squares-squares != 0 {
		bad = fmt.Sprintf("gradient norm is %v", math.Sqrt(squares))
	}
	return grads, bad, nil
}

// addGradients adds the gradients of a sample to the batch's.
func (o *optimizer) addGradients(grads []*kernels.Tensor) {
	for _, r := range o.runs {
		r.on.MultiAxpy(o.sum[r.from:r.to], 1, grads[r.from:r.to])
	}
}

// squares is Σ t² over tensors of the parameters' places, in their order.
func (o *optimizer) squares(ts []*kernels.Tensor) (sum float64) {
	for _, r := range o.runs {
		sum = r.on.MultiSumSquares(sum, ts[r.from:r.to])
	}
	return sum
}

// clear begins a batch.
func (o *optimizer) clear() {
	for _, r := range o.runs {
		r.on.MultiFill(o.sum[r.from:r.to], 0)
	}
}

// update does AdamW step s, from 0, of a schedule with that peak on the mean gradient of so many samples, clipped to
// the global norm. A norm that is not finite changes nothing.
func (o *optimizer) update(c *Config, peak float64, s, samples int) (norm, rate float64, ok bool) {
	norm = o.squares(o.sum)
	scale := 1 / float64(samples)
	norm = math.Sqrt(norm) * scale
	if norm-norm != 0 {
		return norm, 0, false
	}
	if c.Clip > 0 && norm > c.Clip {
		scale *= c.Clip / norm
	}
	rate = peak * c.rate(s)
	a := kernels.AdamWStep{
		Beta1: c.Beta1, Beta2: c.Beta2, Epsilon: c.Epsilon, WeightDecay: c.WeightDecay,
		Correct1: 1 - math.Pow(c.Beta1, float64(s+1)), Correct2: 1 - math.Pow(c.Beta2, float64(s+1)),
		LearningRate: rate, GradScale: scale,
	}
	params := make([]*kernels.Tensor, len(o.params))
	for i, p := range o.params {
		params[i] = p.Tensor
	}
	for _, r := range o.runs {
		r.on.MultiAdamW(params[r.from:r.to], o.sum[r.from:r.to], o.m[r.from:r.to], o.v[r.from:r.to], a)
	}
	return norm, rate, true
}

// rate is the learning rate's factor at a step, counted from 0.
func (c *Config) rate(step int) float64 {
	f := 1.0
	if c.Schedule == "cosine" {
		f = c.FinalRatio + (1-c.FinalRatio)*0.5*(1+math.Cos(math.Pi*float64(step)/float64(c.Steps)))
	}
	if n := c.warmupSteps(); step < n {
		f *= float64(step+1) / float64(n)
	}
	return f
}

// warmupSteps is the number of steps of linear warm-up.
func (c *Config) warmupSteps() int {
	if c.Warmup > 0 {
		return c.Warmup
	}
	return int(math.Ceil(c.WarmupRatio * float64(c.Steps)))
}
