package training

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"glimpse/internal/figures"
	"glimpse/training/tbevents"
)

// scalars are a step's curves.
func scalars(step StepResult) []tbevents.Scalar {
	var out []tbevents.Scalar
	for _, a := range step.Adapters {
		if !a.Skipped {
			out = append(out, tbevents.Scalar{Tag: "loss/" + a.Name, Value: a.Loss}, tbevents.Scalar{Tag: "gradient_norm/" + a.Name, Value: a.GradNorm},
				tbevents.Scalar{Tag: "learning_rate/" + a.Name, Value: a.LearningRate})
		}
	}
	v := step.Validation
	if v == nil {
		return out
	}
	add := func(q Quality) {
		for i, b := range v.Budgets {
			if hits, recall := q.HitRate[i], q.Recall[i]; hits == hits {
				out = append(out, tbevents.Scalar{Tag: fmt.Sprintf("validation_hit_rate_%v/%s", b, q.Name), Value: float64(hits)},
					tbevents.Scalar{Tag: fmt.Sprintf("validation_recall_%v/%s", b, q.Name), Value: float64(recall)})
			}
		}
		if q.Tau == q.Tau {
			out = append(out, tbevents.Scalar{Tag: "validation_tau/" + q.Name, Value: float64(q.Tau)})
		}
	}
	for _, q := range v.Adapters {
		if !math.IsNaN(q.Loss) && !math.IsInf(q.Loss, 0) {
			out = append(out, tbevents.Scalar{Tag: "validation_loss/" + q.Name, Value: q.Loss})
		}
		add(q)
	}
	add(v.SnapKV)
	return out
}

// drawCurves draws the curves of a run's steps as a PNG.
func drawCurves(w io.Writer, adapters []AdapterConfig, steps []StepResult) error {
	return figures.WriteCurves(w, panels(adapters, steps))
}

// panels are losses, hit rates, gradient norms and learning rates over the steps. Each loss has
// axes of its own, for itself and its gradients: KL and MSE have nothing in common.
func panels(adapters []AdapterConfig, steps []StepResult) []figures.Panel {
	var objectives []string
	for _, a := range adapters {
		objectives = append(objectives, a.Loss)
	}
	slices.Sort(objectives)
	objectives = slices.Compact(objectives)
	losses, norms := make([]figures.Panel, len(objectives)), make([]figures.Panel, len(objectives))
	for i, o := range objectives {
		losses[i] = figures.Panel{Title: strings.ToUpper(o) + " loss (dashed: held-out samples)", Log: true}
		norms[i] = figures.Panel{Title: "norm of the gradient of the " + strings.ToUpper(o) + " loss", Log: true}
	}
	hits, rate := figures.Panel{Title: "hit rate on held-out samples (%)"}, figures.Panel{Title: "learning rate", Log: true}
	snap := figures.NewCurve("SnapKV", figures.Reference, true)
	for _, s := range steps {
		if v := s.Validation; v != nil {
			hits.Title = fmt.Sprintf("hit rate on held-out samples at a budget of %v (%%)", v.Budgets[0])
			snap.Add(float64(s.Step), 100*float64(v.SnapKV.HitRate[0]))
		}
	}

	looks, others := curveLooks(steps), figures.Others(len(adapters)-len(figures.CurveColors))
	for i, a := range steps[0].Adapters {
		name := a.Name
		if looks[i] == figures.Other {
			name = others
		}
		loss, norm, learning := figures.NewCurve(name, looks[i], false), figures.NewCurve(name, looks[i], false), figures.NewCurve(name, looks[i], false)
		held, hit := figures.NewCurve("", looks[i], true), figures.NewCurve(name, looks[i], false)
		for _, s := range steps {
			x := float64(s.Step)
			if a := s.Adapters[i]; !a.Skipped {
				loss.Add(x, a.Loss)
				norm.Add(x, a.GradNorm)
				learning.Add(x, a.LearningRate)
			}
			if v := s.Validation; v != nil {
				held.Add(x, v.Adapters[i].Loss)
				hit.Add(x, 100*float64(v.Adapters[i].HitRate[0]))
			}
		}
		at := slices.Index(objectives, adapters[i].Loss)
		losses[at].Lines = append(losses[at].Lines, loss, held)
		norms[at].Lines = append(norms[at].Lines, norm)
		rate.Lines, hits.Lines = append(rate.Lines, learning), append(hits.Lines, hit)
	}
	hits.Lines = append(hits.Lines, snap)
	return slices.Concat(losses, []figures.Panel{hits}, norms, []figures.Panel{rate})
}

// curveLooks has a look for every adapter. Of more than there are colours, those have one that
// hit the most at the last validation, or without any those that are named first.
func curveLooks(steps []StepResult) []int {
	n := len(steps[0].Adapters)
	best := make([]int, n)
	for i := range best {
		best[i] = i
	}
	for _, s := range slices.Backward(steps) {
		if v := s.Validation; v != nil {
			slices.SortStableFunc(best, func(a, b int) int { return cmp.Compare(v.Adapters[b].HitRate[0], v.Adapters[a].HitRate[0]) })
			break
		}
	}
	coloured := best[:min(n, len(figures.CurveColors))]
	looks, next := make([]int, n), 0
	for i := range looks {
		looks[i] = figures.Other
		if slices.Contains(coloured, i) {
			looks[i] = next
			next++
		}
	}
	return looks
}

// exampleSteps are steps of a run, with validations if it has any, for drawing.
func exampleSteps(c *Config) []StepResult {
	steps := make([]StepResult, min(c.Steps, 1000))
	for i := range steps {
		s := &steps[i]
		s.Step = i + 1
		y := 1 / float64(i+1)
		for _, a := range c.Adapters {
			s.Adapters = append(s.Adapters, AdapterResult{Name: a.Name, Loss: y, GradNorm: y, LearningRate: y})
		}
		if v := c.Validation; v.Every > 0 && i%v.Every == 0 {
			q := Quality{Loss: y, HitRate: []Number{Number(y)}}
			s.Validation = &Validation{SnapKV: q, Budgets: v.Budgets}
			for range c.Adapters {
				s.Validation.Adapters = append(s.Validation.Adapters, q)
			}
		}
	}
	return steps
}
