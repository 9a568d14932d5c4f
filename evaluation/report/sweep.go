package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"glimpse/checkpoints"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/figures"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// sweepKey is one line of the chart.
type sweepKey struct {
	policy, modules string
	rate            float64
	budget          eviction.Budget
}

// PlotSweep writes a picture of the score of every adapter of a sweep, as a mean over tasks,
// against its number of rows, with a line for each set of modules (LookaheadKV,
// arXiv:2603.10899, table 5), and beside it, where times were measured, what eviction adds to the
// time to first token. Learning rates, budgets and policies make lines of their own where
// there are several; of more than [MaxHighlighted] lines the others are grey. The full cache is a dashed line. Rows of other adapters are left out; a
// point that was not measured is an error, and so is one that lacks a task.
func PlotSweep(w io.Writer, format figures.Format, rows []evaluation.Row, points []checkpoints.SweepPoint) error {
	fail := func(err error) error { return fmt.Errorf("plot sweep: %w", err) }
	byName := make(map[string]checkpoints.SweepPoint)
	for _, p := range points {
		byName[p.Name] = p
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r evaluation.Row) bool {
		_, ok := byName[r.Adapter]
		return !ok && !r.Budget.IsZero()
	})
	means, err := evaluation.MeanByPolicy(rows)
	if err == nil {
		err = checkSameTasks(rows)
	}
	if err != nil {
		return fail(err)
	}
	var order []sweepKey
	lines := make(map[sweepKey][]evaluation.Mean)
	var full []evaluation.Mean
	timed := true
	for _, m := range means {
		p, ok := byName[m.Adapter]
		if !ok {
			full = append(full, m)
			continue
		}
		k := sweepKey{m.Policy, p.Modules, p.LearningRate, m.Budget}
		if lines[k] == nil {
			order = append(order, k)
		}
		lines[k], timed = append(lines[k], m), timed && m.TTFTOverhead != nil
		delete(byName, m.Adapter)
	}
	if len(order) == 0 {
		return fail(errors.New("got no row of the sweep's adapters"))
	}
	for _, p := range points {
		if _, ok := byName[p.Name]; ok {
			return fail(fmt.Errorf("adapter %s was not measured", p.Name))
		}
	}
	of := make(map[string]int) // rows of an adapter
	var ticks plot.ConstantTicks
	for _, p := range points {
		of[p.Name] = p.Rows
		ticks = append(ticks, plot.Tick{Value: math.Log2(float64(p.Rows)), Label: strconv.Itoa(p.Rows)})
	}
	slices.SortStableFunc(order, func(a, b sweepKey) int {
		return slices.Index(moduleOrder, a.modules) - slices.Index(moduleOrder, b.modules)
	})

	// Of many lines those with the best scores are in colour, the others grey and below.
	best := slices.Clone(order)
	slices.SortStableFunc(best, func(a, b sweepKey) int { return cmp.Compare(average(lines[b]), average(lines[a])) })
	best = best[:min(len(best), MaxHighlighted)]

	legend := figures.NewLegend()
	panel := func(label string, point func(x float64, m evaluation.Mean) figures.Point) *plot.Plot {
		p := figures.New()
		p.X.Label.Text, p.Y.Label.Text = "rows of the adapter", label
		p.X.Tick.Marker = ticks
		figures.AddGrid(p)
		var series, others []*figures.Series
		for _, k := range order {
			slices.SortFunc(lines[k], func(a, b evaluation.Mean) int { return of[a.Adapter] - of[b.Adapter] })
			s := figures.NewSeries(k.label(order), len(series), nil)
			if !slices.Contains(best, k) {
				s = figures.NewSeries(figures.Others(len(order)-len(best)), figures.Other, nil)
			}
			for _, m := range lines[k] {
				s.Points = append(s.Points, point(math.Log2(float64(of[m.Adapter])), m))
			}
			if s.Look == figures.Other {
				others = append(others, s)
				continue
			}
			series = append(series, s)
		}
		figures.AddSeries(p, legend, append(series, others...)...)
		p.X.Min, p.X.Max = p.X.Min-0.2, p.X.Max+0.2
		return p
	}
	scores := panel(scoreAxis(rows), pointOf)
	for _, m := range full {
		figures.AddLevel(scores, legend, fullName(m), m.Shown())
		scores.Y.Min, scores.Y.Max = min(scores.Y.Min, m.Shown()), max(scores.Y.Max, m.Shown())
	}
	plots := []*plot.Plot{scores}
	if timed {
		overhead := panel("added to the time to first token (%)", func(x float64, m evaluation.Mean) figures.Point {
			y := 100 * *m.TTFTOverhead
			return figures.Point{X: x, Y: y, Low: y, High: y}
		})
		overhead.Y.Min = min(0, overhead.Y.Min)
		plots = append(plots, overhead)
	}
	width := vg.Length(len(plots))*4*vg.Inch + legend.Width()
	return figures.WriteGrid(w, format, width, 3.6*vg.Inch, figures.DPI, [][]*plot.Plot{plots}, legend)
}

// moduleOrder is that of LookaheadKV's table 5; other sets come before it.
var moduleOrder = []string{"none", "qv", "all"}

// label tells a line from the others.
func (k sweepKey) label(all []sweepKey) string {
	text := "LoRA on " + k.modules
	if k.modules == "none" {
		text = "embeddings alone"
	}
	differs := func(other func(o sweepKey) bool) bool { return slices.ContainsFunc(all, other) }
	if differs(func(o sweepKey) bool { return o.rate != k.rate }) {
		text += fmt.Sprintf(", rate %g", k.rate)
	}
	if differs(func(o sweepKey) bool { return o.budget != k.budget }) {
		text += fmt.Sprintf(", budget %v", k.budget)
	}
	if differs(func(o sweepKey) bool { return o.policy != k.policy }) {
		text += ", " + k.policy
	}
	return text
}
