package tables

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Column is a column of a Table.
type Column struct {
	Head  string
	Right bool // numbers
	// Wrap breaks cells between words into several lines where the window is narrow.
	Wrap bool
	// Optional columns are left out where the window is too narrow for all: those with the
	// highest number first, and of equal ones the last.
	Optional int
}

// Table is a table of text.
type Table struct {
	columns []Column
	rows    [][]string
}

const (
	between = "  "
	minWrap = 24 // characters of a cell that is wrapped
)

// New is a table without rows. One without any heads has no line for them.
func New(columns ...Column) *Table { return &Table{columns: columns} }

// Add adds a row, whose last cells may be left out.
func (t *Table) Add(cells ...string) {
	t.rows = append(t.rows, append(cells, make([]string, len(t.columns)-len(cells))...))
}

// Write writes the table for a terminal of so many columns; 0 is any length of lines. What is
// left out of it is named below it.
func (t *Table) Write(w io.Writer, columns int) error {
	shown := make([]int, len(t.columns))
	for i := range shown {
		shown[i] = i
	}
	var left []string
	widths := t.widths(shown)
	for columns > 0 && !t.fit(shown, widths, columns-1) {
		drop := -1
		for at, i := range shown {
			if o := t.columns[i].Optional; o > 0 && (drop < 0 || o >= t.columns[shown[drop]].Optional) {
				drop = at
			}
		}
		if drop < 0 {
			break
		}
		left = append(left, t.columns[shown[drop]].Head)
		shown = append(shown[:drop:drop], shown[drop+1:]...)
		widths = t.widths(shown)
	}
	out := NewPage(w)
	heads := make([]string, len(t.columns))
	any := false
	for i, c := range t.columns {
		heads[i], any = c.Head, any || c.Head != ""
	}
	if any {
		out.Heading(t.line(shown, widths, heads))
	}
	for _, row := range t.rows {
		out.WriteString(t.line(shown, widths, row))
	}
	if left != nil {
		fmt.Fprintln(out, Wrap("(not shown, for want of room: "+strings.Join(left, ", ")+")", columns))
	}
	return out.Flush()
}

// widths are those of columns whose cells are on one line.
func (t *Table) widths(shown []int) []int {
	widths := make([]int, len(shown))
	for at, i := range shown {
		widths[at] = utf8.RuneCountInString(t.columns[i].Head)
		for _, row := range t.rows {
			widths[at] = max(widths[at], utf8.RuneCountInString(row[i]))
		}
	}
	return widths
}

// fit narrows the columns that wrap, the widest first, until the table has room; false: it
// has none.
func (t *Table) fit(shown, widths []int, room int) bool {
	total := len(between) * (len(shown) - 1)
	for _, n := range widths {
		total += n
	}
	for total > room {
		widest := -1
		for at, i := range shown {
			if t.columns[i].Wrap && widths[at] > minWrap && (widest < 0 || widths[at] > widths[widest]) {
				widest = at
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
		total--
	}
	return true
}

// line is a row, on several lines where cells are wrapped.
func (t *Table) line(shown, widths []int, row []string) string {
	var out strings.Builder
	cells := make([][]string, len(shown))
	height := 1
	for at, i := range shown {
		cells[at] = []string{row[i]}
		if t.columns[i].Wrap && utf8.RuneCountInString(row[i]) > widths[at] {
			cells[at] = wrap(row[i], widths[at])
		}
		height = max(height, len(cells[at]))
	}
	for n := range height {
		var line strings.Builder
		for at, i := range shown {
			cell := ""
			if n < len(cells[at]) {
				cell = cells[at][n]
			}
			pad := strings.Repeat(" ", max(0, widths[at]-utf8.RuneCountInString(cell)))
			if at > 0 {
				line.WriteString(between)
			}
			if t.columns[i].Right {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}
