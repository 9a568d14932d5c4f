package printable

import (
	"io"
	"os"
	"strings"

	"glimpse/internal/terminal"
)

// Sequences that a terminal obeys (ECMA-48, SGR).
const (
	bold  = "\x1b[1m"
	red   = "\x1b[1;31m"
	reset = "\x1b[0m"
)

// Coloured tells that text on f may be bold or red: on a terminal that has colours, unless
// NO_COLOR says otherwise (https://no-color.org).
func Coloured(f *os.File) bool {
	kind := os.Getenv("TERM")
	return os.Getenv("NO_COLOR") == "" && kind != "" && kind != "dumb" && terminal.Is(f)
}

// Heading writes the lines of text to w, bold where w writes to a terminal that has colours.
// A writer to a terminal is a file, or one that has a method WriteHeading. The width of a
// line is that of its text: the sequences are added when all is laid out.
func Heading(w io.Writer, text string) error {
	if to, ok := w.(interface{ WriteHeading(string) error }); ok {
		return to.WriteHeading(text)
	}
	if f, ok := w.(*os.File); ok && Coloured(f) {
		text = lines(Text(text), bold)
	}
	_, err := io.WriteString(w, text)
	return err
}

// Red is text in red.
func Red(text string) string { return lines(Text(text), red) }

// lines sets each line apart, so that a pager or a window that shows some of them shows them
// right.
func lines(text, begin string) string {
	all := strings.Split(text, "\n")
	for i, line := range all {
		if line != "" {
			all[i] = begin + line + reset
		}
	}
	return strings.Join(all, "\n")
}

// WriteHeading is Heading to where w writes.
func (w *Writer) WriteHeading(text string) error {
	if err := w.Flush(); err != nil {
		return err
	}
	if f := w.Terminal(); f == nil || !Coloured(f) {
		_, err := io.WriteString(w, text)
		return err
	}
	_, err := io.WriteString(w.w, lines(Text(text), bold))
	return err
}
