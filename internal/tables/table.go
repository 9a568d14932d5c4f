package tables

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Column is a column of a Table.
type Column struct {
	Head  string // may have line breaks
	Right bool   // numbers
	// Break is of a head whose first line is a name. Where lines are too long names are broken after
	// their separators, no more than it takes. The column is one space from that before it.
	Break bool
	// Wrap breaks cells between words into several lines where the window is narrow.
	Wrap bool
	// Optional columns are left out where the window is too narrow for all: those with the
	// highest number first, and of equal ones the last.
	Optional int
}

// Table is a table of text.
type Table struct {
	Ruled bool // a rule is below the heads
	Room  int  // of lines that no window bounds, for which names are broken; 0: any

	columns []Column
	rows    [][]string
}

const (
	minWrap = 24 // characters of a cell that is wrapped
	minName = 4  // characters to which names are broken
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
	room := t.Room
	if columns > 0 {
		room = columns - 1
	}
	shown := make([]int, len(t.columns))
	for i := range shown {
		shown[i] = i
	}
	var left []string
	heads, widths, fits := t.fit(shown, room)
	for columns > 0 && !fits {
		drop := -1
		for at, i := range shown {
			if o := t.columns[i].Optional; o > 0 && (drop < 0 || o >= t.columns[shown[drop]].Optional) {
				drop = at
			}
		}
		if drop < 0 {
			break
		}
		left = append(left, strings.ReplaceAll(t.columns[shown[drop]].Head, "\n", " "))
		shown = append(shown[:drop:drop], shown[drop+1:]...)
		heads, widths, fits = t.fit(shown, room)
	}
	out := NewPage(w)
	if slices.ContainsFunc(t.columns, func(c Column) bool { return c.Head != "" }) {
		out.Heading(t.lines(shown, widths, heads))
	}
	cells := make([][]string, len(shown))
	if t.Ruled {
		for at, n := range widths {
			cells[at] = []string{strings.Repeat("─", n)}
		}
		out.WriteString(t.lines(shown, widths, cells))
	}
	for _, row := range t.rows {
		for at, i := range shown {
			cells[at] = []string{row[i]}
			if t.columns[i].Wrap && utf8.RuneCountInString(row[i]) > widths[at] {
				cells[at] = wrap(row[i], widths[at])
			}
		}
		out.WriteString(t.lines(shown, widths, cells))
	}
	if left != nil {
		fmt.Fprintln(out, Wrap("(not shown, for want of room: "+strings.Join(left, ", ")+")", columns))
	}
	return out.Flush()
}

// fit are the lines of the heads and the widths of columns. For a room, 0 being any, names are broken
// first, then columns that wrap are narrowed, the widest first; fits is false where it is too small.
func (t *Table) fit(shown []int, room int) (heads [][]string, widths []int, fits bool) {
	limit := 0
	for _, i := range shown {
		if c := t.columns[i]; c.Break {
			limit = max(limit, utf8.RuneCountInString(c.Head))
		}
	}
	heads, widths, total := t.measureColumns(shown, limit)
	for ; room > 0 && total > room && limit > minName; limit-- {
		heads, widths, total = t.measureColumns(shown, limit-1)
	}
	for room > 0 && total > room {
		widest := -1
		for at, i := range shown {
			if t.columns[i].Wrap && widths[at] > minWrap && (widest < 0 || widths[at] > widths[widest]) {
				widest = at
			}
		}
		if widest < 0 {
			return heads, widths, false
		}
		widths[widest]--
		total--
	}
	return heads, widths, true
}

// measureColumns are the lines of the heads with names of at most limit characters, all with as many, the widths
// of columns whose cells are on one line, and that of a line.
func (t *Table) measureColumns(shown []int, limit int) (heads [][]string, widths []int, total int) {
	height := 0
	for at, i := range shown {
		c := t.columns[i]
		head := strings.Split(c.Head, "\n")
		if c.Break {
			head = append(breakName(head[0], limit), head[1:]...)
		}
		width := 0
		for _, line := range head {
			width = max(width, utf8.RuneCountInString(line))
		}
		for _, row := range t.rows {
			width = max(width, utf8.RuneCountInString(row[i]))
		}
		height = max(height, len(head))
		heads, widths, total = append(heads, head), append(widths, width), total+len(c.gap(at))+width
	}
	for at, head := range heads { // which stand on what is below them
		heads[at] = append(make([]string, height-len(head)), head...)
	}
	return heads, widths, total
}

// gap is the space before a column at a place.
func (c Column) gap(at int) string {
	switch {
	case at == 0:
		return ""
	case c.Break:
		return " "
	}
	return "  "
}

// lines are cells beside each other, each of some lines.
func (t *Table) lines(shown, widths []int, cells [][]string) string {
	var out strings.Builder
	height := 1
	for _, lines := range cells {
		height = max(height, len(lines))
	}
	for n := range height {
		var line strings.Builder
		for at, i := range shown {
			cell := ""
			if n < len(cells[at]) {
				cell = cells[at][n]
			}
			pad := strings.Repeat(" ", max(0, widths[at]-utf8.RuneCountInString(cell)))
			line.WriteString(t.columns[i].gap(at))
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

// breakName breaks a name into lines of at most limit characters, after separators only,
// which are kept at the ends of their lines: a longer word has a line of its own.
func breakName(name string, limit int) []string {
	var lines []string
	add := func(part string) {
		if n := len(lines); n > 0 && utf8.RuneCountInString(lines[n-1]+part) <= limit {
			lines[n-1] += part
			return
		}
		lines = append(lines, part)
	}
	start := 0
	for i, r := range name {
		if strings.ContainsRune("_-./ :", r) {
			add(name[start : i+1])
			start = i + 1
		}
	}
	if start < len(name) {
		add(name[start:])
	}
	return lines
}
