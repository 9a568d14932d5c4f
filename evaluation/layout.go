package evaluation

import (
	"strings"
	"unicode/utf8"
)

// textWidth is what a plain-text table tries to stay within.
const textWidth = 120

// writeText lays columns out with spaces. Task names are broken over several lines
// of the head, no more than it takes to stay within textWidth.
func writeText(out *strings.Builder, columns []column) {
	longest := 0
	for _, c := range columns {
		if c.task {
			longest = max(longest, utf8.RuneCountInString(c.head))
		}
	}
	heads, widths := breakHeads(columns, longest)
	for limit := longest - 1; limit >= minHead && lineWidth(columns, widths) > textWidth; limit-- {
		heads, widths = breakHeads(columns, limit)
	}

	height := 0
	for _, h := range heads {
		height = max(height, len(h))
	}
	line := func(text func(column int) string) {
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
		out.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	for i := range height {
		line(func(c int) string {
			if above := height - len(heads[c]); i >= above { // heads stand on the rule below them
				return heads[c][i-above]
			}
			return ""
		})
	}
	line(func(c int) string { return strings.Repeat("─", widths[c]) })
	for row := range columns[0].cells {
		line(func(c int) string { return columns[c].cells[row] })
	}
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
			head = breakName(c.head, limit)
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

// breakName breaks a name into lines of at most limit characters: after separators
// (kept at the ends of their lines) where that is enough, and elsewhere into pieces
// of about equal length.
func breakName(name string, limit int) []string {
	var lines []string
	add := func(part []rune) {
		if n := len(lines); n > 0 && utf8.RuneCountInString(lines[n-1])+len(part) <= limit {
			lines[n-1] += string(part)
			return
		}
		pieces := max(1, (len(part)+limit-1)/limit)
		size := (len(part) + pieces - 1) / pieces
		for len(part) > size {
			lines, part = append(lines, string(part[:size])), part[size:]
		}
		lines = append(lines, string(part))
	}
	var part []rune
	for _, r := range name {
		part = append(part, r)
		if strings.ContainsRune("_-./ :", r) {
			add(part)
			part = nil
		}
	}
	if len(part) > 0 {
		add(part)
	}
	return lines
}

// wrap breaks text between words into lines of at most width characters.
func wrap(text string, width int) string {
	var b strings.Builder
	used := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case used == 0:
		case used+1+n > width:
			b.WriteString("\n")
			used = 0
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}

// writeMarkdown writes columns as a GitHub table.
func writeMarkdown(out *strings.Builder, columns []column) {
	escape := strings.NewReplacer(`\`, `\\`, "|", `\|`, "\n", " ", "<", "&lt;", "_", `\_`, "*", `\*`, "`", "\\`")
	line := func(text func(column) string) {
		for _, c := range columns {
			out.WriteString("| " + text(c) + " ")
		}
		out.WriteString("|\n")
	}
	line(func(c column) string { return escape.Replace(c.head) })
	for i := range columns {
		if i == 0 {
			out.WriteString("|:---")
		} else {
			out.WriteString("|---:")
		}
	}
	out.WriteString("|\n")
	for row := range columns[0].cells {
		line(func(c column) string { return escape.Replace(c.cells[row]) })
	}
}
