package tables

import (
	"bytes"
	"io"
	"strings"

	"github.com/rivo/uniseg"
)

// Wrapper breaks text between words while it comes, into lines shorter than so many columns.
// A word is written when its end has come, at the latest when it fills a line.
type Wrapper struct {
	w       io.Writer
	columns int    // 0: lines as they are
	at      int    // column of the cursor
	spaces  string // after the last word, which a line break takes the place of
	word    []byte
}

// NewWrapper returns a Wrapper to w.
func NewWrapper(w io.Writer, columns int) *Wrapper { return &Wrapper{w: w, columns: columns} }

// Write implements io.Writer.
func (w *Wrapper) Write(p []byte) (int, error) {
	if w.columns <= 1 {
		return w.w.Write(p)
	}
	var out strings.Builder
	for rest := p; len(rest) > 0; {
		n := bytes.IndexAny(rest, " \n")
		if n != 0 {
			if n < 0 {
				n = len(rest)
			}
			w.word = append(w.word, rest[:n]...)
			rest = rest[n:]
			if uniseg.StringWidth(string(w.word)) >= w.columns-1 {
				w.putWord(&out)
			}
			continue
		}
		w.putWord(&out)
		if rest[0] == '\n' {
			out.WriteByte('\n')
			w.at, w.spaces = 0, ""
		} else {
			w.spaces += " "
		}
		rest = rest[1:]
	}
	if _, err := io.WriteString(w.w, out.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// putWord writes the word, on the next line where this one has no room for it.
func (w *Wrapper) putWord(out *strings.Builder) {
	if len(w.word) == 0 {
		return
	}
	n := uniseg.StringWidth(string(w.word))
	if w.at > 0 && w.at+len(w.spaces)+n >= w.columns {
		out.WriteByte('\n')
		w.at, w.spaces = 0, ""
	}
	out.WriteString(w.spaces)
	out.Write(w.word)
	w.at += len(w.spaces) + n
	w.at %= w.columns // of a word longer than a line
	w.spaces, w.word = "", nil
}

// Flush writes the last word.
func (w *Wrapper) Flush() error {
	var out strings.Builder
	w.putWord(&out)
	_, err := io.WriteString(w.w, out.String())
	return err
}
