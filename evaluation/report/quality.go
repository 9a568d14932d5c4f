package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
)

// maxLabel is how many characters of a name a chart shows.
const maxLabel = 32

// place puts a budget on an axis: pairs, or where all budgets are shares, percent of the
// prompt. A share among pairs stands for as many as it is of a prompt of the mean length.
func (s *Section) place(b eviction.Budget) float64 {
	if s.shares() {
		return 100 * b.Share()
	}
	tokens := 0
	for _, r := range s.rows {
		tokens += r.Tokens
	}
	return float64(b.Of(tokens / len(s.rows)))
}

func (s *Section) shares() bool {
	return !slices.ContainsFunc(s.budgets, func(b eviction.Budget) bool { return b.Share() == 0 })
}

// scoreLabel names the axis of scores.
func (s *Section) scoreLabel() string {
	label := s.metric()
	if len(s.tasks) > 1 {
		label += ", mean"
	}
	if s.unit().Perplexity {
		return label + " (lower is better)"
	}
	return label + " (%)"
}

// scoreRange is that of an axis for means with their errors.
func scoreRange(means []evaluation.Mean) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, m := range means {
		below, above := m.Spread()
		low, high = min(low, below), max(high, above)
	}
	switch {
	case len(means) == 0:
		return percentRange(100, 0)
	case !means[0].Unit.Perplexity:
		return percentRange(low, high)
	}
	margin := max(0.05*(high-low), 0.01*high)
	return max(0, low-margin), high + margin
}

// scorePoint is a mean with its error on an axis.
func scorePoint(x float64, y scale, m evaluation.Mean, before, after string) Point {
	low, high := m.Spread()
	return Point{X: x, Y: y.at(m.Shown()), High: y.at(high), Low: y.at(low), Tip: strings.TrimSpace(before+m.Text()+" "+m.Unit.Sign()) + after}
}

// qualityChart has a line per policy over the budgets; nil for fewer than two budgets.
func (s *Section) qualityChart() *Chart {
	if len(s.budgets) < 2 {
		return nil
	}
	f := frame{left: 52, right: 560, top: 12, bottom: 350}
	c := &Chart{Title: "Score against budget", W: f.right + 100, H: 394,
		About: "Line chart of the mean score of every policy against the budget; the numbers are in the table of means."}
	var whole []evaluation.Mean
	for _, m := range s.means {
		if s.whole(m) {
			whole = append(whole, m)
		}
	}
	low, high := scoreRange(whole)
	y := scale{low: low, high: high, from: f.bottom, to: f.top}
	var at []float64
	for _, b := range s.budgets {
		at = append(at, s.place(b))
	}
	slices.Sort(at)
	at = slices.Compact(at)
	first, last := math.Log(at[0]), math.Log(at[len(at)-1])
	x := scale{low: first, high: last, from: f.left + 16, to: f.right - 12, bend: math.Log}
	f.yAxis(c, y, s.scoreLabel())
	unit := "budget (KV entries per KV head and layer, logarithmic)"
	if s.shares() {
		unit = "budget (% of the prompt, logarithmic)"
	}
	f.xAxis(c, x, at, short, unit)

	type label struct {
		name, class string
		y           float64
	}
	var labels []label
	for _, name := range s.order {
		var points []Point
		for _, b := range s.budgets {
			m, ok := s.mean(name, b)
			if !ok || !s.whole(m) {
				continue
			}
			points = append(points, scorePoint(x.at(s.place(b)), y, m, fmt.Sprintf("%s, %s: ", name, budgetName(b)), ""))
		}
		if len(points) == 0 {
			continue
		}
		c.Series = append(c.Series, Series{Name: name, Class: s.ink[name], Path: path(points), Marks: points})
		if s.ink[name] != classOther {
			labels = append(labels, label{name, s.ink[name], points[len(points)-1].Y})
		}
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	var heights []float64
	for _, l := range labels {
		heights = append(heights, l.y)
	}
	for i, at := range spread(heights, 15, f.top, f.bottom) {
		l := labels[i]
		c.Lines = append(c.Lines, Stroke{f.right - 6, l.y, f.right + 10, at, "leader"})
		text := ellipsis(l.name, maxLabel)
		c.Texts = append(c.Texts, Text{X: f.right + 14, Y: at + 4, Anchor: "start", Class: "label " + l.class, Text: text})
		c.W = max(c.W, f.right+20+textWidth(text))
	}
	s.paint(c)
	return c
}

// paint orders series so that those in colour lie on top.
func (s *Section) paint(c *Chart) {
	rank := func(x Series) int {
		switch x.Class {
		case classOther:
			return 0
		case classReference:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(c.Series, func(a, b Series) int { return cmp.Compare(rank(a), rank(b)) })
}

// cost is something that a policy takes, on an axis.
type cost struct {
	label string
	get   func(evaluation.Mean) *float64
	bend  func(float64) float64
	ticks func(low, high float64) []float64
	text  func(float64) string // of a tick
	tip   string               // format of a value
}

// steps are 1, 2, 5, 10, … between two values.
func steps(low, high float64) []float64 {
	var out []float64
	for power := math.Floor(math.Log10(low)); power <= math.Ceil(math.Log10(high)); power++ {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * math.Pow(10, power); v >= low*(1-1e-9) && v <= high*(1+1e-9) {
				out = append(out, v)
			}
		}
	}
	return out
}

var costs = []cost{
	// Overheads are from below 0, by chance, to many times the prefill.
	{"time to first token, added to a plain prefill (%)", func(m evaluation.Mean) *float64 { return scaled(m.TTFTOverhead, 100) },
		func(v float64) float64 { return math.Asinh(v / 2) },
		func(low, high float64) []float64 {
			out := []float64{}
			for _, v := range []float64{-50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000} {
				if v >= low && v <= high {
					out = append(out, v)
				}
			}
			return out
		}, short, "TTFT %+.1f %%"},
	{"held after eviction (% of the full cache)", func(m evaluation.Mean) *float64 { return scaled(keptShare(m), 100) },
		math.Log, steps, short, "held %.3g %%"},
	{"read by the attention of a decoding step (KiB)", func(m evaluation.Mean) *float64 { return scaled(m.TrafficBytes, 1.0/1024) },
		math.Log, steps, short, "read %.4g KiB per step"},
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
	type dot struct {
		label    string
		at, bent float64
		m        evaluation.Mean
	}
	var dots []dot
	for _, label := range s.order {
		m, ok := s.mean(label, b)
		if !ok || !s.whole(m) {
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
		dots = append(dots, dot{label, *v, bent, m})
	}
	if len(dots) < 2 {
		return nil
	}
	f := frame{left: 50, right: 340, top: 12, bottom: 250}
	c := &Chart{W: 356, H: 294, About: "Scatter chart of the mean score of every policy against: " + k.label}
	var means []evaluation.Mean
	first, last := math.Inf(1), math.Inf(-1)
	smallest, largest := math.Inf(1), math.Inf(-1)
	for _, d := range dots {
		means = append(means, d.m)
		first, last = min(first, d.bent), max(last, d.bent)
		smallest, largest = min(smallest, d.at), max(largest, d.at)
	}
	if first == last {
		first, last = first-1, last+1
	}
	low, high := scoreRange(means)
	y := scale{low: low, high: high, from: f.bottom, to: f.top}
	x := scale{low: first, high: last, from: f.left + 14, to: f.right - 14, bend: k.bend}
	f.yAxis(c, y, s.scoreLabel())
	values := k.ticks(smallest, largest)
	if len(values) < 2 { // all are alike
		values = []float64{smallest, largest}
	}
	f.xAxis(c, x, values, k.text, k.label)
	for _, d := range dots {
		p := scorePoint(x.at(d.at), y, d.m, d.label+": ", ", "+minus(fmt.Sprintf(k.tip, d.at)))
		c.Series = append(c.Series, Series{Name: d.label, Class: s.ink[d.label], Marks: []Point{p}})
	}
	s.paint(c)
	c.Texts = append(c.Texts, placeLabels(c.Series, f)...)
	return c
}

// placeLabels writes the names of points in colour beside them, where they cover neither
// each other nor another point in colour; those that find no room are left to the legend.
func placeLabels(series []Series, f frame) []Text {
	type box struct{ left, top, right, bottom float64 }
	hits := func(a, b box) bool {
		return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
	}
	var taken []box
	for _, s := range series {
		if s.Class != classOther {
			p := s.Marks[0]
			taken = append(taken, box{p.X - 4, p.Y - 4, p.X + 4, p.Y + 4})
		}
	}
	var out []Text
	for _, s := range series {
		if s.Class == classOther {
			continue
		}
		p, name := s.Marks[0], ellipsis(s.Name, maxLabel)
		w := textWidth(name) * 0.85
		for _, t := range []Text{
			{X: p.X + 7, Y: p.Y + 4, Anchor: "start"}, {X: p.X - 7, Y: p.Y + 4, Anchor: "end"},
			{X: p.X, Y: p.Y - 8, Anchor: "middle"}, {X: p.X, Y: p.Y + 16, Anchor: "middle"},
			{X: p.X + 7, Y: p.Y - 7, Anchor: "start"}, {X: p.X + 7, Y: p.Y + 15, Anchor: "start"},
			{X: p.X - 7, Y: p.Y - 7, Anchor: "end"}, {X: p.X - 7, Y: p.Y + 15, Anchor: "end"},
		} {
			left := t.X
			switch t.Anchor {
			case "end":
				left -= w
			case "middle":
				left -= w / 2
			}
			b := box{left, t.Y - 10, left + w, t.Y + 3}
			if b.left < f.left || b.right > f.right+14 || b.top < f.top-8 || b.bottom > f.bottom ||
				slices.ContainsFunc(taken, func(o box) bool { return hits(b, o) }) {
				continue
			}
			t.Class, t.Text = "label "+s.Class, name
			out, taken = append(out, t), append(taken, b)
			break
		}
	}
	return out
}
