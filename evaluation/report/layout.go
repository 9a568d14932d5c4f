package report

import (
	"strings"

	"glimpse/internal/listing"
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
	heads := make([]tables.Column, len(columns))
	for i, c := range columns {
		heads[i] = tables.Column{Head: c.head, Right: i > 0, Break: c.task, Optional: c.optional}
	}
	t := tables.New(heads...)
	t.Ruled, t.Room = true, textWidth
	for _, line := range tableOf(columns).Lines {
		t.Add(listing.Map(line.Cells, func(c Cell) string { return c.Text })...)
	}
	t.Write(out, opts.Columns) // errors stay in the page
	out.WriteString("\n")
}

// columnEscapes are for a table that stands in a text of its own.
var columnEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "\n", " ", "<", "&lt;", "_", `\_`, "*", `\*`, "`", "\\`")

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
