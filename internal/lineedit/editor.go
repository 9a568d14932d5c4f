// Package lineedit reads lines from a person at a terminal, with editing, history and
// completion by golang.org/x/term, to which it adds interrupts and long pastes.
package lineedit

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"glimpse/internal/cli"

	"golang.org/x/term"
)

// ErrInterrupt is what ReadLine returns at Ctrl-C. What was written of the line is dropped.
var ErrInterrupt = errors.New("interrupted")

// Editor reads lines from a terminal. The terminal is raw while a line is read only, so
// that Ctrl-C is a signal at other times.
type Editor struct {
	// Complete are the lines that one may go on as, for the tab key; nil: none.
	Complete func(line string) []string

	in       *os.File
	out      io.Writer
	fd       int // of the terminal that is drawn on
	keys     *keys
	terminal *term.Terminal
}

// Open returns an Editor where in and out are terminals, nil elsewhere. Reading ends with
// ctx.
func Open(ctx context.Context, in io.Reader, out *os.File) *Editor {
	f, ok := in.(*os.File)
	if !ok || out == nil || !term.IsTerminal(int(f.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	e := &Editor{in: f, out: out, fd: int(out.Fd()), keys: &keys{in: cli.Input(ctx, f)}}
	e.terminal = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.keys, out}, "")
	e.keys.before = e.resize // the lock of the terminal is not held there
	e.terminal.History = &history{}
	e.terminal.AutoCompleteCallback = e.complete
	return e
}

// ReadLine reads a line after a prompt, without the line end. The error is io.EOF at Ctrl-D
// on an empty line, and ErrInterrupt at Ctrl-C. Text that was pasted comes as it was
// pasted, with its line ends.
func (e *Editor) ReadLine(prompt string) (line string, err error) {
	state, err := term.MakeRaw(int(e.in.Fd()))
	if err != nil {
		return "", err
	}
	defer term.Restore(int(e.in.Fd()), state)
	e.terminal.SetBracketedPasteMode(true)
	defer e.terminal.SetBracketedPasteMode(false)
	e.resize()
	e.terminal.SetPrompt(prompt)
	e.keys.interrupted = false
	line, err = e.terminal.ReadLine()
	switch {
	case e.keys.interrupted:
		return "", ErrInterrupt
	case err != nil:
		io.WriteString(e.out, "\r\n")
		return "", err
	}
	return e.keys.expand(line), nil
}

// resize tells the terminal how wide the window is now.
func (e *Editor) resize() {
	if columns, rows, err := term.GetSize(e.fd); err == nil && columns > 0 {
		e.terminal.SetSize(columns, rows)
	}
}

// complete writes what all lines have in common that a line may go on as.
func (e *Editor) complete(line string, pos int, key rune) (string, int, bool) {
	if key != '\t' || e.Complete == nil {
		return "", 0, false
	}
	head, common, found := line[:pos], "", false
	for _, candidate := range e.Complete(head) {
		switch {
		case !strings.HasPrefix(candidate, head):
		case !found:
			common, found = candidate, true
		default:
			for !strings.HasPrefix(candidate, common) {
				common = common[:len(common)-1]
			}
		}
	}
	if !found {
		return line, pos, true
	}
	return common + line[pos:], len(common), true
}

// history are the lines so far, without empty and repeated ones.
type history struct{ lines []string }

func (h *history) Add(line string) {
	if n := len(h.lines); strings.TrimSpace(line) == "" || n > 0 && h.lines[n-1] == line {
		return
	}
	h.lines = append(h.lines, line)
}

func (h *history) Len() int        { return len(h.lines) }
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }
