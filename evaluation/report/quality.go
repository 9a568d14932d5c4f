package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/figures"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// maxLabel is how many characters of a name a chart shows.
const maxLabel = 32

// Chart is a figure of the page.
type Chart struct {
	Title, About  string
	Width, Height vg.Length
	Series        []*figures.Series // of a chart of lines or points
	plot          *plot.Plot
}

// SVG is the chart as an element of the page.
func (c *Chart) SVG() template.HTML {
	return template.HTML(figures.Inline(c.Width, c.Height, c.About, func(to draw.Canvas) {
		c.plot.BackgroundColor = nil
		figures.FitY(c.plot, 0.8*c.Height)
		c.plot.Draw(draw.Crop(to, 1, -1, 2, -3))
	}))
}

// Wide tells that a narrow screen scrolls it.
func (c *Chart) Wide() bool { return c.Width > 400 }

// series are points of a policy in its look, with their marks.
func (s *Section) series(label string, points []figures.Point) *figures.Series {
	out := figures.NewSeries(label, s.looks[label], points).ForPage()
	out.Label = ellipsis(label, maxLabel)
	return out
}

// withTip adds to a point what is shown of it.
func withTip(p figures.Point, m evaluation.Mean, before, after string) figures.Point {
	p.Tip = strings.TrimSpace(before+m.FormatScore()+" "+m.Unit.Sign()) + after
	return p
}

// drawSeries adds series to the chart's plot, those in colour on top.
func (c *Chart) drawSeries(labels plot.Plotter, series []*figures.Series) {
	slices.SortStableFunc(series, func(a, b *figures.Series) int { return cmp.Compare(min(a.Look, 0), min(b.Look, 0)) })
	c.Series = series
	figures.AddSeries(c.plot, figures.NewLegend(), series...)
	c.plot.Add(labels)
}

// drawable tells that a mean is over all tasks and finite.
func (s *Section) drawable(m evaluation.Mean) bool {
	v := m.Shown()
	return s.coversAll(m) && v-v == 0
}

// qualityChart has a line per policy over the budgets; nil for fewer than two budgets, and without any mean.
func (s *Section) qualityChart() *Chart {
	whole := slices.DeleteFunc(slices.Clone(s.means), func(m evaluation.Mean) bool { return !s.drawable(m) })
	if len(s.budgets) < 2 || len(whole) == 0 {
		return nil
	}
	axis := axisOf(s.rows)
	c := &Chart{Title: "Score against budget", Width: 520, Height: 300, plot: accuracyPlot(s.rows, whole, axis.budgetsOf(s.means), 0),
		About: "Line chart of the mean score of every policy against the budget; the numbers are in the table of means."}
	var series []*figures.Series
	for _, name := range s.order {
		var points []figures.Point
		for _, b := range s.budgets {
			if m, ok := s.mean(name, b); ok && s.drawable(m) {
				points = append(points, withTip(pointOf(axis.position(b), m), m, fmt.Sprintf("%s, %s: ", name, budgetName(b)), ""))
			}
		}
		if len(points) > 0 {
			series = append(series, s.series(name, points))
		}
	}
	c.drawSeries(figures.EndLabels(series), series)
	return c
}

// cost is something that a policy takes, on an axis.
type cost struct {
	label string
	get   func(evaluation.Mean) *float64
	bend  func(float64) float64
	ticks []float64 // none: a logarithmic axis has its own
	tip   string    // format of a value
}

var costs = []cost{
	// Overheads are from below 0, by chance, to many times the prefill.
	{"time to first token, added to a plain prefill (%)", func(m evaluation.Mean) *float64 { return scaled(m.TTFTOverhead, 100) },
		func(v float64) float64 { return math.Asinh(v / 2) },
		[]float64{-50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}, "TTFT %+.1f %%"},
	{"held after eviction (% of the full cache)", func(m evaluation.Mean) *float64 { return scaled(keptShare(m), 100) },
		math.Log, nil, "held %.3g %%"},
	{"read by the attention of a decoding step (KiB)", func(m evaluation.Mean) *float64 { return scaled(m.TrafficBytes, 1.0/1024) },
		math.Log, nil, "read %.4g KiB per step"},
}

func scaled(v *float64, factor float64) *float64 {
	if v == nil {
		return nil
	}
	return new(*v * factor)
}

// costTabs are charts of the score against what it takes, for every budget.
func (s *Section) costTabs() []Tab {
	var out []Tab
	for _, b := range s.budgets {
		tab := Tab{Name: budgetName(b)}
		for _, k := range costs {
			if c := s.costChart(b, k); c != nil {
				tab.Charts = append(tab.Charts, c)
			}
		}
		if len(tab.Charts) > 0 {
			out = append(out, tab)
		}
	}
	return out
}

// costChart is nil unless two policies have the cost.
func (s *Section) costChart(b eviction.Budget, k cost) *Chart {
	c := &Chart{Width: 285, Height: 235, plot: figures.New(), About: "Scatter chart of the mean score of every policy against: " + k.label}
	var series []*figures.Series
	var means []evaluation.Mean
	smallest, largest := math.Inf(1), math.Inf(-1)
	for _, label := range s.order {
		m, ok := s.mean(label, b)
		if !ok || !s.drawable(m) {
			continue
		}
		v := k.get(m)
		if v == nil {
			continue
		}
		bent := k.bend(*v)
		if math.IsNaN(bent) || math.IsInf(bent, 0) {
			continue
		}
		smallest, largest, means = min(smallest, *v), max(largest, *v), append(means, m)
		p := withTip(pointOf(bent, m), m, label+": ", ", "+minus(fmt.Sprintf(k.tip, *v)))
		series = append(series, s.series(label, []figures.Point{p}))
	}
	if len(series) < 2 {
		return nil
	}
	figures.AddGrid(c.plot)
	c.plot.X.Label.Text, c.plot.Y.Label.Text = k.label, scoreAxis(s.rows)
	values := slices.Clone(k.ticks)
	if values == nil {
		for _, t := range (figures.LogTicks{}).Ticks(smallest, largest) {
			values = append(values, t.Value)
		}
	}
	values = slices.DeleteFunc(values, func(v float64) bool { return v < smallest || v > largest })
	if len(values) < 2 { // all are alike
		values = []float64{smallest, largest}
	}
	c.drawSeries(figures.PointLabels(series), series)
	margin := 0.05 * (c.plot.X.Max - c.plot.X.Min)
	margin = cmp.Or(margin, 1)
	c.plot.X.Min, c.plot.X.Max = c.plot.X.Min-margin, c.plot.X.Max+margin
	setScoreAxis(c.plot, means)
	ticks := spacedTicks(values, k.bend, 0.1*(c.plot.X.Max-c.plot.X.Min))
	for i := range ticks {
		ticks[i].Value = k.bend(ticks[i].Value)
	}
	c.plot.X.Tick.Marker = ticks
	return c
}
