package training

import (
	"fmt"
	"math"
	"slices"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
)

// learner is one adapter in training: its parameters and what AdamW keeps of them.
type learner struct {
	AdapterConfig
	adapter   model.RowsAdapter
	objective objective
	of        int // place of its label among the trainer's
	params    []model.Parameter
	sum       []*kernels.Tensor // gradients of the current batch
	m, v      []*kernels.Tensor // AdamW moments
	best      []*kernels.Tensor // parameters at the best validation; nil where none is asked for
	runs      []parameterRun
}

// parameterRun is parameters [from, to), which follow each other on a device.
type parameterRun struct {
	on       kernels.Backend
	from, to int
}

// newLearner initialises an adapter, its moments and, where validation looks for them, the
// place of its best parameters.
func newLearner(m *model.Model, c AdapterConfig, budgets *eviction.HeadBudgets, keepsBest bool) (*learner, error) {
	kind, err := model.RowsKinds.Lookup(c.Kind)
	if err != nil {
		return nil, err
	}
	l := &learner{AdapterConfig: c}
	if l.adapter, err = kind.New(m, c.AdapterConfig); err != nil {
		return nil, err
	}
	if l.objective, err = newObjective(m, l.adapter, &c, budgets); err != nil {
		return nil, fmt.Errorf("adapter %s: %w", c.Name, err)
	}
	l.params = l.adapter.Parameters()
	if c.InitAdapter != "" && !m.Counts() {
		if err := l.initFrom(m, kind); err != nil {
			return nil, fmt.Errorf("adapter %s: init adapter %s: %w", c.Name, c.InitAdapter, err)
		}
	}
	for i, p := range l.params {
		on, last := m.On(p.Layer), len(l.runs)-1
		if last < 0 || l.runs[last].on != on {
			l.runs = append(l.runs, parameterRun{on, i, i + 1})
		} else {
			l.runs[last].to = i + 1
		}
		for _, dst := range []*[]*kernels.Tensor{&l.sum, &l.m, &l.v} {
			z := on.Alloc(p.Tensor.DType, p.Tensor.Shape...)
			on.Fill(z, 0)
			*dst = append(*dst, z)
		}
	}
	if keepsBest {
		for _, p := range l.params {
			b := m.On(p.Layer).Alloc(p.Tensor.DType, p.Tensor.Shape...)
			m.On(p.Layer).Copy(b, p.Tensor)
			l.best = append(l.best, b)
		}
	}
	return l, nil
}

// initFrom copies the numbers of another adapter, of whatever kind, with as many rows and the same factors.
func (l *learner) initFrom(m *model.Model, kind model.RowsKind) error {
	stored, err := readAdapterFor(m, l.InitAdapter)
	if err != nil {
		return err
	}
	stored.Kind = l.Kind
	from, err := kind.Load(m, stored)
	if err != nil {
		return err
	}
	numbers := make(map[string]*kernels.Tensor)
	for _, p := range from.Parameters() {
		numbers[p.Name] = p.Tensor
	}
	if len(numbers) != len(l.params) {
		return fmt.Errorf("%d parameters, want %d as the adapter has", len(numbers), len(l.params))
	}
	for _, p := range l.params {
		x := numbers[p.Name]
		if x == nil || !slices.Equal(x.Shape, p.Tensor.Shape) {
			return fmt.Errorf("parameter %s: got %v, want %v", p.Name, shapeOf(x), p.Tensor.Shape)
		}
		m.On(p.Layer).Copy(p.Tensor, x)
	}
	return nil
}

func shapeOf(x *kernels.Tensor) []int {
	if x == nil {
		return nil
	}
	return x.Shape
}

// gradients are the gradients of the sample that a student has run. A norm that is not finite is said
// in words.
func (l *learner) gradients(s *student) (grads []*kernels.Tensor, bad string, err error) {
	grads = make([]*kernels.Tensor, len(l.sum))
	for j := range grads {
		if grads[j], err = s.graph.Gradient(j); err != nil {
			return nil, "", err
		}
	}
	if squares := l.squares(grads); squares-squares != 0 {
		bad = fmt.Sprintf("gradient norm is %v", math.Sqrt(squares))
	}
	return grads, bad, nil
}

// addGradients adds the gradients of a sample to the batch's.
func (l *learner) addGradients(grads []*kernels.Tensor) {
	for _, r := range l.runs {
		r.on.MultiAxpy(l.sum[r.from:r.to], 1, grads[r.from:r.to])
	}
}

// squares is Σ t² over tensors of the parameters' places, in their order.
func (l *learner) squares(ts []*kernels.Tensor) (sum float64) {
	for _, r := range l.runs {
		sum = r.on.MultiSumSquares(sum, ts[r.from:r.to])
	}
	return sum
}

// clear begins a batch.
func (l *learner) clear() {
	for _, r := range l.runs {
		r.on.MultiFill(l.sum[r.from:r.to], 0)
	}
}

// update does AdamW step s, from 0, on the mean gradient of so many samples, clipped to
// the global norm. A norm that is not finite changes nothing.
func (l *learner) update(c *Config, s, samples int) (norm, rate float64, ok bool) {
	norm = l.squares(l.sum)
	scale := 1 / float64(samples)
	norm = math.Sqrt(norm) * scale
	if norm-norm != 0 {
		return norm, 0, false
	}
	if c.Clip > 0 && norm > c.Clip {
		scale *= c.Clip / norm
	}
	rate = l.LearningRate * c.rate(s)
	a := kernels.AdamWStep{
		Beta1: c.Beta1, Beta2: c.Beta2, Epsilon: c.Epsilon, WeightDecay: c.WeightDecay,
		Correct1: 1 - math.Pow(c.Beta1, float64(s+1)), Correct2: 1 - math.Pow(c.Beta2, float64(s+1)),
		LearningRate: rate, GradScale: scale,
	}
	params := make([]*kernels.Tensor, len(l.params))
	for i, p := range l.params {
		params[i] = p.Tensor
	}
	for _, r := range l.runs {
		r.on.MultiAdamW(params[r.from:r.to], l.sum[r.from:r.to], l.m[r.from:r.to], l.v[r.from:r.to], a)
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
