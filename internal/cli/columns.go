package cli

import (
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Columns is the width of the terminal that a file is; 0: it is none, and lines may have
// any length.
func Columns(f *os.File) int {
	if f == nil || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 {
		return 80 // of a terminal that does not tell
	}
	return columns
}

// Wrap breaks text between words into lines shorter than so many columns, since some terminals
// are on the next line after a full one; 0 leaves it as it is.
func Wrap(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		used := 0
		for word := range strings.SplitSeq(line, " ") {
			n := utf8.RuneCountInString(word)
			switch {
			case used == 0:
			case used+1+n >= columns:
				b.WriteByte('\n')
				used = 0
			default:
				b.WriteByte(' ')
				used++
			}
			b.WriteString(word)
			used += n
		}
	}
	return b.String()
}
