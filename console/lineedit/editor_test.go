package lineedit

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"glimpse/internal/terminaltest"
)

// TestEdit: however keys are cut into reads, and however early they come, they are those of
// the lines that they belong to.
func TestEdit(t *testing.T) {
	const typed = "one\rtwo\r\ndropped\x03漢\x1b[Dx\r" + pasteBegin + "a\nb" + pasteEnd + " c\n\x04ab\x1b[D\x04\r\x04"
	for name, in := range map[string]io.Reader{"whole": strings.NewReader(typed), "bytes": iotest.OneByteReader(strings.NewReader(typed))} {
		e := &Editor{in: in, fd: -1, view: view{out: io.Discard, columns: 80, prompt: "> "}}
		for _, want := range []struct {
			line string
			err  error
		}{
			{"one", nil}, {"two", nil}, {"", ErrInterrupt}, {"x漢", nil}, {"a\nb c", nil}, {"", io.EOF}, {"a", nil}, {"", io.EOF},
		} {
			line, err := e.edit()
			if line = e.pastes.expand(line); line != want.line || !errors.Is(err, want.err) {
				t.Fatalf("%s: %q, %v, want %q, %v", name, line, err, want.line, want.err)
			}
			e.view = view{out: io.Discard, columns: 80, prompt: "> "}
		}
	}
	ended := errors.New("ended")
	e := &Editor{in: io.MultiReader(strings.NewReader("begun"), iotest.ErrReader(ended)), fd: -1, view: view{out: io.Discard, columns: 80}}
	if _, err := e.edit(); !errors.Is(err, ended) {
		t.Errorf("%v, want %v", err, ended)
	}
}

// TestUnknownWidth: a terminal that does not tell its width is drawn on as one of 80 columns.
func TestUnknownWidth(t *testing.T) {
	_, tty := terminaltest.Open(t, 0)
	e := Open(t.Context(), tty, tty)
	if e == nil {
		t.Fatal("no editor at a terminal")
	}
	if e.resize(); e.view.columns != unknown {
		t.Errorf("%d columns, want %d", e.view.columns, unknown)
	}
}
