package report

import (
	"fmt"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/figures"
	"glimpse/internal/listing"

	"gonum.org/v1/plot/vg"
)

// barTabs have a chart of bars for every task, in a tab for each budget. Of many policies
// those in colour are shown; the tables have all.
func (s *Section) barTabs() []Tab {
	if len(s.tasks) < 2 {
		return nil
	}
	var labels []string
	others := 0
	for _, label := range s.order {
		switch {
		case s.chosen(label):
			labels = append(labels, label)
		case !IsReference(label):
			others++
		}
	}
	if others > 0 && others <= 4 { // few are no burden
		labels = slices.DeleteFunc(slices.Clone(s.order), IsReference)
		others = 0
	}
	var out []Tab
	for _, b := range s.budgets {
		tab := Tab{Name: budgetName(b), Note: "Score in %, with one standard error to each side."}
		if slices.Contains(s.order, "full") {
			tab.Note += " The dashed line is the full cache."
		}
		if others > 0 {
			tab.Note += fmt.Sprintf(" These are the policies in colour; the tables have the %d others.", others)
		}
		for _, task := range s.tasks {
			if c := s.barChart(task, b, labels); c != nil {
				tab.Charts = append(tab.Charts, c)
			}
		}
		if len(tab.Charts) > 0 {
			out = append(out, tab)
		}
	}
	return out
}

func (s *Section) barChart(task string, b eviction.Budget, labels []string) *Chart {
	var bars figures.Bars
	for _, label := range labels {
		r := s.row(label, task, b)
		if r == nil || r.Score == nil {
			continue
		}
		m := r.Mean()
		low, high := m.Spread()
		bars = append(bars, figures.Bar{Name: ellipsis(label, 19), Value: percent(*r.Score), Color: s.series(label, nil).Line.Color, At: m.Shown(), Low: low, High: high,
			Tip: fmt.Sprintf("%s, %s, %s: %s %% (%s)", label, task, budgetName(b), m.FormatScore(), samplesIn([]evaluation.Row{*r}, ""))})
	}
	if len(bars) == 0 {
		return nil
	}
	c := &Chart{Title: strings.TrimPrefix(task, s.Suite+"/"), Width: 272, Height: 8 + 13.6*vg.Length(len(bars)), plot: figures.NewBars(bars),
		About: fmt.Sprintf("Bars of the scores in task %s; the numbers are in the table of scores.", task)}
	if r := s.row("full", task, b); r != nil && r.Score != nil {
		c.plot.Add(figures.Upright(100 * *r.Score))
	}
	return c
}

// ellipsis shortens a text to n characters.
func ellipsis(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// heatTabs have the heat maps of needles: a tab for every task and budget, a chart for every
// policy, with the prompt length from left to right and the depth from top to bottom. Their numbers go into
// tables with a line for every policy and depth, and a column for every length.
func (s *Section) heatTabs() (out []Tab) {
	for _, m := range NeedleMaps(s.groups) {
		tab := Tab{Name: budgetName(m.Budget)}
		if len(s.tasks) > 1 {
			tab.Of = m.Task
		}
		tokens, depths := stepsOf(m.Cells)
		numbers := &Table{Heads: []Head{{Text: "policy", Left: true}, {Text: "depth", Unit: "%"}}}
		for _, n := range tokens {
			numbers.Heads = append(numbers.Heads, Head{Text: thousands(n), Unit: "tokens"})
		}
		for _, label := range s.order {
			cells := slices.DeleteFunc(slices.Clone(m.Cells), func(c NeedleCell) bool { return c.Policy != label })
			if len(cells) == 0 || s.looks[label] == figures.Other && len(s.order) > 16 {
				continue
			}
			chart, h := heatMap(label, cells, tokens, depths)
			tab.Charts = append(tab.Charts, chart)
			for row, values := range h.Values {
				l, some := Line{Class: s.lookClass(label), Cells: []Cell{{Text: label}, {Text: h.Y[row]}}}, false
				for _, v := range values {
					text := absent
					if v == v {
						text, some = percent(v), true
					}
					l.Cells = append(l.Cells, Cell{Text: text})
				}
				if some {
					numbers.Lines = append(numbers.Lines, l)
				}
			}
		}
		if len(s.order) > 16 {
			tab.Note = "Bounds and the policies in colour; the groups' tables have the others."
		}
		if len(tab.Charts) > 0 {
			out = append(out, tab)
			s.heatNumbers = append(s.heatNumbers, Tab{Of: tab.Of, Name: tab.Name, Table: numbers})
		}
	}
	return out
}

// heatMap is the chart of one policy's cells, and what it draws.
func heatMap(label string, cells []NeedleCell, tokens []int, depths []float64) (*Chart, *figures.Heat) {
	h, mean := needleHeat(cells, tokens, depths)
	h.YLabel = "depth (%)"
	for range depths {
		h.Tips = append(h.Tips, make([]string, len(tokens)))
	}
	for _, c := range cells {
		row, column := placeOf(c, tokens, depths)
		h.Tips[row][column] = fmt.Sprintf("%s, %d tokens, depth %s %%: %s %% (%s)", label, c.Tokens, h.Y[row], percent(c.Accuracy), listing.Count(c.Samples, "sample"))
	}
	high := min(136, max(72, 16*vg.Length(len(depths))))
	return &Chart{Title: fmt.Sprintf("%s (%s %%)", label, percent(mean)), Width: 234, Height: high + 34, plot: h.NewPlot(vg.Point{X: 190, Y: high}),
		About: "Heat map of the score by prompt length and depth of the needle."}, h
}
