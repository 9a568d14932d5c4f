package printable

import (
	"io"
	"os"
	"unicode/utf8"
)

// Writer writes what is written to it as [Text] shows it. A character whose bytes come
// in several writes waits for its last byte.
type Writer struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

// NewWriter returns a Writer to w. Its methods must not be called concurrently.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	data := append(w.rest, p...)
	whole := len(data) - partial(data)
	_, err := io.WriteString(w.w, Text(string(data[:whole])))
	w.rest = append([]byte(nil), data[whole:]...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what waits for the rest of a character.
func (w *Writer) Flush() error {
	_, err := io.WriteString(w.w, Text(string(w.rest)))
	w.rest = nil
	return err
}

// Terminal is the file written to; nil: it is none.
func (w *Writer) Terminal() *os.File {
	f, _ := w.w.(*os.File)
	return f
}

// partial is the number of bytes at the end of data that begin a character.
func partial(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if tail := data[len(data)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
