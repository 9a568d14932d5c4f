package tables

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"glimpse/internal/terminal"
)

// Columns is the width of the terminal that w writes to; 0: it writes to none, and lines may
// have any length. A writer to a terminal is a file, or says so by a method Terminal.
func Columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if shown, is := w.(interface{ Terminal() *os.File }); is {
		f, ok = shown.Terminal(), true
	}
	if !ok {
		return 0
	}
	return terminal.Columns(f)
}

// Wrap breaks text between words into lines shorter than so many columns, since some terminals
// are on the next line after a full one; 0 leaves it as it is. A longer word has a line of
// its own.
func Wrap(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	return strings.Join(wrap(text, columns-1), "\n")
}

// Reflow is Wrap of text that has line ends of its own, where one of its lines is too long:
// paragraphs are filled anew, and lines that begin with a space stay lines.
func Reflow(text string, columns int) string {
	if columns <= 0 || !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return utf8.RuneCountInString(line) >= columns }) {
		return text
	}
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") && !strings.Contains(p, "\n ") {
			p = strings.ReplaceAll(p, "\n", " ")
		}
		paragraphs[i] = Wrap(p, columns)
	}
	return strings.Join(paragraphs, "\n\n")
}

// wrap breaks text between words into lines of at most so many characters.
func wrap(text string, width int) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		used := -1 // of the line begun; -1: none is
		for word := range strings.SplitSeq(line, " ") {
			n := utf8.RuneCountInString(word)
			if used < 0 || used+1+n > width {
				lines, used = append(lines, word), n
				continue
			}
			lines[len(lines)-1] += " " + word
			used += 1 + n
		}
	}
	return lines
}
