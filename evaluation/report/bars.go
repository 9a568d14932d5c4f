package report

import (
	"fmt"
	"image/color"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"

	"gonum.org/v1/plot/palette"
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
		case !reference(label):
			others++
		}
	}
	if others > 0 && others <= 4 { // few are no burden
		labels = slices.DeleteFunc(slices.Clone(s.order), reference)
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
	const rowHeight, left, right = 17, 128, 292
	c := &Chart{Title: strings.TrimPrefix(task, s.Suite+"/"), W: 340, About: fmt.Sprintf("Bars of the scores in task %s; the numbers are in the table of scores.", task)}
	x := scale{low: 0, high: 100, from: left, to: right}
	y := 4.0
	for _, label := range labels {
		r := s.row(label, task, b)
		if r == nil || r.Score == nil {
			continue
		}
		class, m := s.ink[label], r.Mean()
		score := m.Shown()
		low, high := m.Spread()
		tip := fmt.Sprintf("%s, %s, %s: %s %% (%s)", label, task, budgetName(b), m.Text(), evaluation.SamplesOf([]evaluation.Row{*r}, ""))
		c.Texts = append(c.Texts, Text{X: left - 6, Y: y + 11, Anchor: "end", Class: classTick, Text: ellipsis(label, 19)})
		c.Rects = append(c.Rects, Rect{X: left, Y: y + 2, W: max(0.75, x.at(score)-left), H: rowHeight - 5, Class: "bar " + class, Tip: tip})
		middle := y + 2 + float64(rowHeight-5)/2
		c.Lines = append(c.Lines, Stroke{x.at(low), middle, x.at(high), middle, "whisker"})
		c.Texts = append(c.Texts, Text{X: right + 44, Y: y + 11, Anchor: "end", Class: classTick, Text: percent(*r.Score)})
		y += rowHeight
	}
	if len(c.Rects) == 0 {
		return nil
	}
	c.Lines = append(c.Lines, Stroke{left, 2, left, y, classAxis})
	if r := s.row("full", task, b); r != nil && r.Score != nil {
		at := x.at(100 * *r.Score)
		c.Lines = append(c.Lines, Stroke{at, 2, at, y, "full"})
	}
	c.H = y + 4
	return c
}

func samplesOf(n int) string {
	if n == 1 {
		return "1 sample"
	}
	return fmt.Sprintf("%d samples", n)
}

// ellipsis shortens a text to n characters.
func ellipsis(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// heatTabs have the heat maps of needles: a tab for every task and budget, a chart for every
// policy, with the prompt length from left to right and the depth from top to bottom.
func (s *Section) heatTabs() ([]Tab, error) {
	colors, err := evaluation.AccuracyColors()
	if err != nil {
		return nil, err
	}
	var out []Tab
	for _, m := range evaluation.NeedleMaps(s.groups) {
		tab := Tab{Name: budgetName(m.Budget)}
		if len(s.tasks) > 1 {
			tab.Of = m.Task
		}
		var tokens []int
		var depths []float64
		for _, c := range m.Cells {
			tokens, depths = append(tokens, c.Tokens), append(depths, c.Depth)
		}
		slices.Sort(tokens)
		slices.Sort(depths)
		tokens, depths = slices.Compact(tokens), slices.Compact(depths)
		for _, label := range s.order {
			if s.ink[label] == classOther && len(s.order) > 16 {
				continue
			}
			cells := slices.DeleteFunc(slices.Clone(m.Cells), func(c evaluation.NeedleCell) bool { return c.Policy != label })
			if len(cells) > 0 {
				tab.Charts = append(tab.Charts, heatMap(label, cells, tokens, depths, colors))
			}
		}
		if len(s.order) > 16 {
			tab.Note = "Bounds and the policies in colour; the groups' tables have the others."
		}
		if len(tab.Charts) > 0 {
			out = append(out, tab)
			s.heatNumbers = append(s.heatNumbers, Tab{Of: tab.Of, Name: tab.Name, Table: s.heatTable(m, tokens, depths)})
		}
	}
	return out, nil
}

// heatTable has the numbers of the policies that the charts show: a line for every policy
// and depth, a column for every length.
func (s *Section) heatTable(m evaluation.NeedleMap, tokens []int, depths []float64) *Table {
	t := &Table{Heads: []Head{{Text: "policy", Left: true}, {Text: "depth", Unit: "%"}}}
	for _, n := range tokens {
		t.Heads = append(t.Heads, Head{Text: thousands(n), Unit: "tokens"})
	}
	for _, label := range s.order {
		if s.ink[label] == classOther && len(s.order) > 16 {
			continue
		}
		for _, depth := range depths {
			l := Line{Class: s.ink[label], Cells: []Cell{{Text: label}, {Text: short(100 * depth)}}}
			some := false
			for _, n := range tokens {
				text := absent
				for _, c := range m.Cells {
					if c.Policy == label && c.Depth == depth && c.Tokens == n {
						text, some = percent(c.Accuracy), true
					}
				}
				l.Cells = append(l.Cells, Cell{Text: text})
			}
			if some {
				t.Lines = append(t.Lines, l)
			}
		}
	}
	return t
}

func heatMap(label string, cells []evaluation.NeedleCell, tokens []int, depths []float64, colors palette.ColorMap) *Chart {
	f := frame{left: 44, right: 284, top: 4, bottom: 4 + min(170, max(90, 20*float64(len(depths))))}
	sum := 0.0
	for _, c := range cells {
		sum += c.Accuracy
	}
	c := &Chart{W: 292, H: f.bottom + 40, Title: fmt.Sprintf("%s (%s %%)", label, percent(sum/float64(len(cells)))),
		About: "Heat map of the score by prompt length and depth of the needle."}
	w, h := (f.right-f.left)/float64(len(tokens)), (f.bottom-f.top)/float64(len(depths))
	gap := 0.75
	if w < 6 || h < 6 {
		gap = 0
	}
	for _, cell := range cells {
		t, _ := slices.BinarySearch(tokens, cell.Tokens)
		d, _ := slices.BinarySearch(depths, cell.Depth)
		at := Rect{X: f.left + float64(t)*w + gap, Y: f.top + float64(d)*h + gap, W: w - 2*gap, H: h - 2*gap, Class: "heat",
			Tip: fmt.Sprintf("%s, %d tokens, depth %s %%: %s %% (%s)", label, cell.Tokens, short(100*cell.Depth), percent(cell.Accuracy), samplesOf(cell.Samples))}
		ink, err := colors.At(cell.Accuracy)
		if err != nil {
			continue // Row.Validate has seen to it
		}
		at.Fill = hex(ink)
		c.Rects = append(c.Rects, at)
		if w >= 30 && h >= 14 {
			class := "in light"
			if cell.Accuracy > 0.6 {
				class = "in dark"
			}
			c.Texts = append(c.Texts, Text{X: at.X + at.W/2, Y: at.Y + at.H/2 + 4, Anchor: "middle", Class: class, Text: fmt.Sprintf("%.0f", 100*cell.Accuracy)})
		}
	}
	for d, depth := range depths {
		if every := int(14/h) + 1; d%every == 0 {
			c.Texts = append(c.Texts, Text{X: f.left - 6, Y: f.top + (float64(d)+0.5)*h + 4, Anchor: "end", Class: classTick, Text: short(100 * depth)})
		}
	}
	end := f.left
	for t, n := range tokens {
		s := thousands(n)
		x := f.left + (float64(t)+0.5)*w
		if half := textWidth(s) / 2; x-half >= end-8 {
			c.Texts = append(c.Texts, Text{X: x, Y: f.bottom + 15, Anchor: "middle", Class: classTick, Text: s})
			end = x + half + 12
		}
	}
	c.Texts = append(c.Texts, Text{X: (f.left + f.right) / 2, Y: f.bottom + 32, Anchor: "middle", Class: className, Text: "prompt tokens"},
		Text{X: 11, Y: (f.top + f.bottom) / 2, Anchor: "middle", Class: className, Text: "depth (%)", Turned: true})
	return c
}

// thousands shortens whole multiples of 1024 to 4k.
func thousands(n int) string {
	if n%1024 == 0 {
		return fmt.Sprintf("%dk", n/1024)
	}
	return fmt.Sprint(n)
}

func hex(c color.Color) string {
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
