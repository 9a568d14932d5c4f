package report

import (
	"slices"
	"strings"
	"unicode/utf8"

	"glimpse/internal/tables"
)

// textWidth is what a plain-text table tries to stay within where no terminal shows it.
const textWidth = 120

// writeColumns writes a table with its title.
func writeColumns(out *tables.Page, title string, columns []column, opts TableOptions) {
	if opts.Markdown {
		m := markdown{escapes: columnEscapes}
		m.printf("**%s**\n\n", title)
		m.table(tableOf(columns))
		out.WriteString(m.String())
		return
	}
	out.Heading(tables.Wrap(title, opts.Columns) + "\n\n")
	writeText(out, columns, opts.Columns)
	out.WriteString("\n")
}

// columnEscapes are those of a table that stands in a text of its own.
var columnEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "\n", " ", "<", "&lt;", "_", `\_`, "*", `\*`, "`", "\\`")

// writeText lays columns out with spaces. Task names are broken over several lines of the
// head, between their words and no more than it takes. On a terminal of so many columns the lines
// are shorter than that: columns that may be left out are, and are named below the table.
func writeText(out *tables.Page, all []column, terminal int) {
	width := textWidth
	if terminal > 0 {
		width = terminal - 1
	}
	columns := slices.Clone(all)
	heads, widths := fitHeads(columns, width)
	var left []string
	for terminal > 0 && lineWidth(columns, widths) > width {
		drop := -1
		for i, c := range columns {
			if c.optional > 0 && (drop < 0 || c.optional >= columns[drop].optional) {
				drop = i
			}
		}
		if drop < 0 {
			break
		}
		left = append(left, strings.ReplaceAll(columns[drop].head, "\n", " "))
		columns = slices.Delete(columns, drop, drop+1)
		heads, widths = fitHeads(columns, width)
	}

	height := 0
	for _, h := range heads {
		height = max(height, len(h))
	}
	line := func(text func(column int) string) string {
		var b strings.Builder
		for i, width := range widths {
			s := text(i)
			pad := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
			if i == 0 {
				b.WriteString(s + pad)
			} else {
				b.WriteString(gap(columns[i]) + pad + s)
			}
		}
		return strings.TrimRight(b.String(), " ") + "\n"
	}
	for i := range height {
		out.Heading(line(func(c int) string {
			if above := height - len(heads[c]); i >= above { // heads stand on the rule below them
				return heads[c][i-above]
			}
			return ""
		}))
	}
	out.WriteString(line(func(c int) string { return strings.Repeat("─", widths[c]) }))
	for row := range columns[0].cells {
		out.WriteString(line(func(c int) string { return columns[c].cells[row] }))
	}
	if left != nil {
		out.WriteString(tables.Wrap("(not shown, for want of room: "+strings.Join(left, ", ")+")", terminal) + "\n")
	}
}

// fitHeads breaks task names as far as it takes for a width.
func fitHeads(columns []column, width int) (heads [][]string, widths []int) {
	longest := 0
	for _, c := range columns {
		if c.task {
			longest = max(longest, utf8.RuneCountInString(c.head))
		}
	}
	heads, widths = breakHeads(columns, longest)
	for limit := longest - 1; limit >= minHead && lineWidth(columns, widths) > width; limit-- {
		heads, widths = breakHeads(columns, limit)
	}
	return heads, widths
}

// minHead is the least number of characters to which names are broken.
const minHead = 4

// gap is the space before a column. Task columns hold at most three digits under
// heads of usually more characters and need less.
func gap(c column) string {
	if c.task {
		return " "
	}
	return "  "
}

// breakHeads breaks task names into pieces of at most limit characters, and returns
// every column's head lines and width.
func breakHeads(columns []column, limit int) (heads [][]string, widths []int) {
	for _, c := range columns {
		head := strings.Split(c.head, "\n")
		if c.task {
			head = append(breakName(head[0], limit), head[1:]...)
		}
		width := 0
		for _, s := range append(head, c.cells...) {
			width = max(width, utf8.RuneCountInString(s))
		}
		heads, widths = append(heads, head), append(widths, width)
	}
	return heads, widths
}

func lineWidth(columns []column, widths []int) int {
	total := widths[0]
	for i, c := range columns[1:] {
		total += len(gap(c)) + widths[i+1]
	}
	return total
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

// tableOf is a table of columns.
func tableOf(columns []column) *Table {
	t := &Table{Lines: make([]Line, len(columns[0].cells))}
	for i, c := range columns {
		t.Heads = append(t.Heads, Head{Text: strings.ReplaceAll(c.head, "\n", " "), Left: i == 0})
		for j, text := range c.cells {
			t.Lines[j].Cells = append(t.Lines[j].Cells, Cell{Text: text})
		}
	}
	return t
}
