package calibration

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"glimpse/evaluation"
	"glimpse/eviction"
)

// Measured are cells of the predictions of a run, and what is missing of it.
type Measured struct {
	Cells   []Cell
	Metric  string // that answers are scored by
	Failed  int    // prompts that could not be measured with the full cache, and count nowhere
	Lost    int    // answers that failed under eviction alone, and count as all lost
	Prompts int    // that count
}

// Measure makes cells of the predictions of one model. Prompts with the same document are averaged: document says which one a sample
// of a task is about.
func (p Promise) Measure(all []*evaluation.Prediction, document func(task string, index int) int) (*Measured, error) {
	type cellKey struct{ policy, adapter, budget string }
	out := new(Measured)
	var keys []cellKey
	sums := make(map[cellKey]map[int][]float64) // losses by document
	samples := make(map[evaluation.SampleKey][]*evaluation.Prediction)
	var order []evaluation.SampleKey
	for _, x := range all {
		if samples[x.Key()] == nil {
			order = append(order, x.Key())
		}
		samples[x.Key()] = append(samples[x.Key()], x)
	}
	for _, key := range order {
		lines := samples[key]
		i := slices.IndexFunc(lines, func(x *evaluation.Prediction) bool { return x.Policy == "full" })
		if i < 0 || !lines[i].Measured() {
			out.Failed++
			continue
		}
		whole := lines[i]
		if p.Loss.Name == eviction.LossAccuracy {
			if whole.Metric == evaluation.Agreement || whole.Metric == "" {
				return nil, fmt.Errorf("sample %s of %s has no reference answer, want one for the loss %s", whole.Sample, whole.Task, p.Loss.Name)
			}
			if out.Metric = cmp.Or(out.Metric, whole.Metric); out.Metric != whole.Metric {
				return nil, fmt.Errorf("answers are scored by %s and by %s, want one metric for all", out.Metric, whole.Metric)
			}
		}
		at := document(whole.Task, whole.Index)
		out.Prompts++
		for _, x := range lines {
			if x == whole {
				continue
			}
			loss := 1.0 // an answer that failed is lost
			if !x.Measured() {
				out.Lost++
			} else if of, err := p.of(x, whole); err != nil {
				return nil, err
			} else {
				loss = of
			}
			k := cellKey{x.Policy, x.Adapter, x.Budget}
			if sums[k] == nil {
				keys, sums[k] = append(keys, k), make(map[int][]float64)
			}
			sums[k][at] = append(sums[k][at], loss)
		}
	}
	for _, k := range keys {
		c := Cell{Policy: k.policy, Adapter: k.adapter}
		var err error
		if c.Budget, err = eviction.ParseBudget(k.budget); err != nil {
			return nil, err
		}
		var documents []int
		for d := range sums[k] {
			documents = append(documents, d)
		}
		slices.Sort(documents)
		for _, d := range documents {
			sum := 0.0
			for _, x := range sums[k][d] {
				sum += x
			}
			c.Losses = append(c.Losses, sum/float64(len(sums[k][d])))
			c.Prompts += len(sums[k][d])
		}
		out.Cells = append(out.Cells, c)
	}
	if len(out.Cells) == 0 {
		return nil, errors.New("no prompt was measured")
	}
	return out, nil
}

// of is the loss of a line against the full cache's.
func (p Promise) of(x, whole *evaluation.Prediction) (float64, error) {
	get := func(y *evaluation.Prediction, name string) (float64, error) {
		if v, ok := y.Measures[name]; ok {
			return v, nil
		}
		return 0, fmt.Errorf("sample %s of %s, policy %s: there is no %s, which the loss %s is made of", y.Sample, y.Task, y.Policy, name, p.Loss.Name)
	}
	switch p.Loss.Name {
	case eviction.LossAgreement:
		f1, err := get(x, evaluation.Agreement)
		return p.Loss.OfAgreement(f1), err
	case eviction.LossNLL:
		if whole.Measures[evaluation.MeasureAnswered] == 0 {
			return 0, nil // the full cache says nothing
		}
		a, err := get(x, evaluation.MeasureNLL)
		b, err2 := get(whole, evaluation.MeasureNLL)
		return p.Loss.OfNLL(a, b), errors.Join(err, err2)
	}
	a, err := get(x, whole.Metric)
	b, err2 := get(whole, whole.Metric)
	return p.Loss.OfScore(a, b), errors.Join(err, err2)
}
