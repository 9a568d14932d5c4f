package report

import (
	"cmp"
	"maps"
	"math"
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

// Mark is how a value stands among the others of its column.
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

// policyTable is a table with a line for each policy, to which columns are added.
type policyTable struct {
	*Table
	labels []string
	sparse bool // a column without any value is left out
}

// policyTable is one of the policies with these labels, in the section's looks.
func (s *Section) policyTable(labels []string) *policyTable {
	t := &policyTable{Table: &Table{Heads: []Head{{Text: "policy", Left: true}}, Note: noteMarks + " " + noteError}, labels: labels}
	for _, label := range labels {
		t.Lines = append(t.Lines, Line{Class: s.lookClass(label), Cells: []Cell{{Text: label}}})
	}
	return t
}

// addColumn adds a column: cell says for the line of a label how it is shown, and the value for which it is
// marked. It is not ok where there is nothing.
func (t *policyTable) addColumn(head Head, better sense, cell func(label string) (c Cell, v float64, ok bool)) {
	cells, values := make([]Cell, len(t.labels)), make([]float64, len(t.labels))
	some := false
	for i, label := range t.labels {
		var ok bool
		if cells[i], values[i], ok = cell(label); !ok {
			cells[i], values[i] = Cell{Text: absent}, math.NaN()
		}
		some = some || cells[i].Text != absent
	}
	if t.sparse && !some {
		return
	}
	t.Heads = append(t.Heads, head)
	for i, c := range cells {
		t.Lines[i].Cells = append(t.Lines[i].Cells, c)
	}
	if better != neither {
		competes := func(i int) bool { return !IsReference(t.labels[i]) }
		markColumn(t.Table, len(t.Heads)-1, values, competes, better)
	}
}

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
	texts := slices.SortedFunc(maps.Keys(shown), func(a, b string) int { return cmp.Compare(shown[b], shown[a]) }) // equal values are shown alike
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
