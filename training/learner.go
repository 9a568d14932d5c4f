package training

import (
	"fmt"
	"slices"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
)

// learner is one adapter in training.
type learner struct {
	AdapterConfig
	*optimizer
	adapter   model.RowsAdapter
	objective objective
	of        int               // place of its label among the trainer's
	best      []*kernels.Tensor // parameters at the best validation; nil where none is asked for
}

// newLearner initialises an adapter and, where validation looks for them, the place of its best parameters.
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
	l.optimizer = newOptimizer(m, l.adapter.Parameters())
	if c.InitAdapter != "" && !m.Counts() {
		if err := l.initFrom(m, kind); err != nil {
			return nil, fmt.Errorf("adapter %s: init adapter %s: %w", c.Name, c.InitAdapter, err)
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
