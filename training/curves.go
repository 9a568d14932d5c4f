package training

import (
	"fmt"
	"io"
	"math"

	"glimpse/internal/figures"
	"glimpse/internal/tbevents"
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
func drawCurves(w io.Writer, steps []StepResult) error { return figures.WriteCurves(w, panels(steps)) }

// panels are losses, hit rates, gradient norms and learning rates over the steps.
func panels(steps []StepResult) []figures.Panel {
	loss := figures.Panel{Title: "loss (dashed: held-out samples)", Log: true}
	hits := figures.Panel{Title: "hit rate on held-out samples, smallest budget (dashed: SnapKV)"}
	norm, rate := figures.Panel{Title: "gradient norm", Log: true}, figures.Panel{Title: "learning rate", Log: true}
	for i, a := range steps[0].Adapters {
		line := func(value func(AdapterResult) float64) figures.Line {
			l := figures.Line{Name: a.Name, Color: i}
			for _, s := range steps {
				if !s.Adapters[i].Skipped {
					l.Steps, l.Values = append(l.Steps, float64(s.Step)), append(l.Values, value(s.Adapters[i]))
				}
			}
			return l
		}
		validation := func(value func(*Validation) float64) figures.Line {
			l := figures.Line{Name: a.Name, Color: i}
			for _, s := range steps {
				if s.Validation != nil {
					l.Steps, l.Values = append(l.Steps, float64(s.Step)), append(l.Values, value(s.Validation))
				}
			}
			return l
		}
		held := validation(func(v *Validation) float64 { return v.Adapters[i].Loss })
		held.Dashed, held.Name = true, a.Name+", held out"
		loss.Lines = append(loss.Lines, line(func(a AdapterResult) float64 { return a.Loss }), held)
		norm.Lines = append(norm.Lines, line(func(a AdapterResult) float64 { return a.GradNorm }))
		rate.Lines = append(rate.Lines, line(func(a AdapterResult) float64 { return a.LearningRate }))
		hits.Lines = append(hits.Lines, validation(func(v *Validation) float64 { return float64(v.Adapters[i].HitRate[0]) }))
		if i == len(steps[0].Adapters)-1 {
			snap := validation(func(v *Validation) float64 { return float64(v.SnapKV.HitRate[0]) })
			snap.Name, snap.Color, snap.Dashed = "SnapKV", 6, true
			hits.Lines = append(hits.Lines, snap)
		}
	}
	return []figures.Panel{loss, hits, norm, rate}
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
