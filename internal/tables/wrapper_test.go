package tables

import (
	"io"
	"strings"
	"testing"
)

// However a text is cut into writes, its lines are broken between the same words.
func TestWrapper(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"one two three", 0, "one two three"},
		{"one two three", 8, "one two\nthree"},
		{"one  two\n\nthree four", 9, "one  two\n\nthree\nfour"},
		{"a  bcdefg", 8, "a\nbcdefg"},
		{"  indented line", 12, "  indented\nline"},
		{"日本語 文字", 9, "日本語\n文字"},
	} {
		for size := 1; size <= len(c.text); size++ {
			var out strings.Builder
			w := NewWrapper(&out, c.columns)
			for rest := c.text; rest != ""; {
				n := min(size, len(rest))
				io.WriteString(w, rest[:n])
				rest = rest[n:]
			}
			if err := w.Flush(); err != nil || out.String() != c.want {
				t.Errorf("%q in %d columns, writes of %d: %q (%v), want %q", c.text, c.columns, size, out.String(), err, c.want)
			}
		}
	}
	// A word without an end is not held back for longer than a line.
	var out strings.Builder
	w := NewWrapper(&out, 10)
	io.WriteString(w, strings.Repeat("字", 20))
	if out.Len() == 0 {
		t.Error("nothing is written of a long word")
	}
}
