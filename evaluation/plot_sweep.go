package evaluation

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/internal/figures"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
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
func PlotSweep(w io.Writer, format figures.Format, rows []Row, points []checkpoints.SweepPoint) error {
	fail := func(err error) error { return fmt.Errorf("plot sweep: %w", err) }
	byName := make(map[string]checkpoints.SweepPoint)
	for _, p := range points {
		byName[p.Name] = p
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		_, ok := byName[r.Adapter]
		return !ok && !r.Budget.IsZero()
	})
	means, err := MeanByPolicy(rows)
	if err == nil {
		err = checkSameTasks(rows)
	}
	if err != nil {
		return fail(err)
	}
	var order []sweepKey
	lines := make(map[sweepKey][]Mean)
	var full []Mean
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
	var ticks []plot.Tick
	for _, p := range points {
		of[p.Name] = p.Rows
		ticks = append(ticks, plot.Tick{Value: math.Log2(float64(p.Rows)), Label: strconv.Itoa(p.Rows)})
	}
	slices.SortStableFunc(order, func(a, b sweepKey) int {
		return slices.Index(moduleOrder, a.modules) - slices.Index(moduleOrder, b.modules)
	})

	// Of many lines those with the best scores are in colour, the others grey and below.
	score := func(k sweepKey) (sum float64) {
		for _, m := range lines[k] {
			sum += m.Score / float64(len(lines[k]))
		}
		return sum
	}
	best := slices.Clone(order)
	slices.SortStableFunc(best, func(a, b sweepKey) int { return cmp.Compare(score(b), score(a)) })
	best = best[:min(len(best), MaxHighlighted)]

	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	figures.StyleLegend(&legend)
	var labels []string
	panel := func(label string, value func(Mean) (low, y, high float64)) (*plot.Plot, error) {
		p := figures.New()
		p.X.Label.Text, p.Y.Label.Text = "rows of the adapter", label
		p.X.Tick.Marker = plot.ConstantTicks(ticks)
		figures.AddGrid(p)
		others := len(order) - len(best)
		for _, k := range order {
			if slices.Contains(best, k) {
				continue
			}
			xys := make(plotter.XYs, len(lines[k]))
			for j, m := range lines[k] {
				xys[j].X = math.Log2(float64(of[m.Adapter]))
				_, xys[j].Y, _ = value(m)
			}
			slices.SortFunc(xys, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
			drawn, err := plotter.NewLine(xys)
			if err != nil {
				return nil, err
			}
			drawn.Color, drawn.Width = figures.Faint, vg.Points(0.8)
			p.Add(drawn)
		}
		i := -1
		for _, k := range order {
			if !slices.Contains(best, k) {
				continue
			}
			i++
			line := lines[k]
			slices.SortFunc(line, func(a, b Mean) int { return of[a.Adapter] - of[b.Adapter] })
			xys, bars := make(plotter.XYs, len(line)), make(plotter.YErrors, len(line))
			for j, m := range line {
				low, y, high := value(m)
				xys[j] = plotter.XY{X: math.Log2(float64(of[m.Adapter])), Y: y}
				bars[j].Low, bars[j].High = y-low, high-y
			}
			drawn, dots, err := plotter.NewLinePoints(xys)
			if err != nil {
				return nil, err
			}
			drawn.Color, drawn.Width = figures.Colors[i%len(figures.Colors)], figures.LineWidth
			drawn.Dashes = seriesDashes[i/len(figures.Colors)%len(seriesDashes)]
			dots.Color, dots.Radius, dots.Shape = drawn.Color, vg.Points(2.8), seriesGlyphs[i%len(seriesGlyphs)]
			errorBars, err := plotter.NewYErrorBars(struct {
				plotter.XYs
				plotter.YErrors
			}{xys, bars})
			if err != nil {
				return nil, err
			}
			errorBars.Color, errorBars.LineStyle.Width = drawn.Color, vg.Points(0.8)
			p.Add(errorBars, drawn, dots)
			if len(labels) < len(best) {
				labels = append(labels, k.label(order))
				legend.Add(labels[i], drawn, dots)
			}
		}
		if others > 0 && len(labels) == len(best) {
			labels = append(labels, fmt.Sprintf("%d others", others))
			legend.Add(labels[len(best)], &plotter.Line{LineStyle: draw.LineStyle{Color: figures.Faint, Width: figures.LineWidth}})
		}
		p.X.Min, p.X.Max = p.X.Min-0.2, p.X.Max+0.2
		return p, nil
	}
	scores, err := panel(scoreAxis(rows), func(m Mean) (low, y, high float64) {
		low, high = m.Spread()
		return low, m.Shown(), high
	})
	if err != nil {
		return fail(err)
	}
	for _, m := range full {
		addReference(scores, &legend, m)
		labels = append(labels, referenceLabel(m))
		scores.Y.Min, scores.Y.Max = min(scores.Y.Min, m.Shown()), max(scores.Y.Max, m.Shown())
	}
	plots := [][]*plot.Plot{{scores}}
	if timed {
		overhead, err := panel("added to the time to first token (%)", func(m Mean) (low, y, high float64) {
			y = 100 * *m.TTFTOverhead
			return y, y, y
		})
		if err != nil {
			return fail(err)
		}
		overhead.Y.Min = min(0, overhead.Y.Min)
		plots[0] = append(plots[0], overhead)
	}
	legendWidth := vg.Length(0)
	for _, label := range labels {
		legendWidth = max(legendWidth, figures.TextWidth(label, 9))
	}
	legendWidth += legend.ThumbnailWidth + vg.Points(24)
	width, height := vg.Length(len(plots[0]))*4*vg.Inch+legendWidth, 3.6*vg.Inch
	tiles := draw.Tiles{Rows: 1, Cols: len(plots[0]), PadX: vg.Points(14), PadTop: vg.Points(8), PadBottom: vg.Points(4), PadLeft: vg.Points(6), PadRight: vg.Points(10)}
	return figures.Write(w, format, width, height, plotDPI, func(c draw.Canvas) {
		cells := plot.Align(plots, tiles, draw.Crop(c, 0, -legendWidth, 0, 0))
		legend.Draw(draw.Crop(c, c.Max.X-c.Min.X-legendWidth+vg.Points(8), 0, 0, -vg.Points(8)))
		for i, p := range plots[0] {
			p.Draw(cells[0][i])
		}
	})
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
