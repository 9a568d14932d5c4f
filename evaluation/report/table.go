package report

import (
	"slices"
)

// Table is a table of the report.
type Table struct {
	Caption string
	Heads   []Head
	Lines   []Line
	Note    string
}

// Head is the head of a column.
type Head struct {
	Text string
	Unit string // below it
	Note string // shown when the pointer is on it
	Left bool   // text, not numbers
}

// Line is a row of a table.
type Line struct {
	Class string // of its policy: c0 … in colour, ref or other
	Cells []Cell
}

// Cell is one field.
type Cell struct {
	Text  string
	Error string // standard error, without its sign
	Mark  Mark
	Near  bool // cannot be told apart from the best
	Note  string
	Bar   *Bar // of a mean or difference
}

// Mark is how a value stands among those of its column.
type Mark int

// The marks.
const (
	Unmarked Mark = iota
	Best
	Second
)

// Bar is an interval on a scale from 0 to 100.
type Bar struct{ Low, At, High, Zero float64 }

// absent stands for what was not measured.
const absent = "–"

// markColumn marks the best and the second best of a column by the values as they are shown,
// so that what looks alike is marked alike. Lines that do not compete, and columns in which
// all values are equal, stay as they are.
func markColumn(t *Table, column int, values []float64, competes func(line int) bool, better sense) {
	shown := make(map[string]float64) // by text: the best value that is shown so
	for i, v := range values {
		if !competes(i) || v != v {
			continue
		}
		if better == lower {
			v = -v
		}
		text := t.Lines[i].Cells[column].Text
		if old, ok := shown[text]; !ok || v > old {
			shown[text] = v
		}
	}
	if len(shown) < 2 {
		return
	}
	var texts []string
	for text := range shown {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int {
		switch {
		case shown[a] > shown[b]:
			return -1
		case shown[a] < shown[b]:
			return 1
		}
		return 0 // equal values are shown alike
	})
	for i, v := range values {
		if !competes(i) || v != v {
			continue
		}
		c := &t.Lines[i].Cells[column]
		switch c.Text {
		case texts[0]:
			c.Mark = Best
		case texts[1]:
			if len(texts) > 2 { // the worst of two is no second best
				c.Mark = Second
			}
		}
	}
}
