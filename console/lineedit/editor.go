// Package lineedit reads lines from a person at a terminal, with editing, history and
// completion.
//
// The editors at hand count characters where a terminal has columns (golang.org/x/term), read
// and write the process's own files only (github.com/peterh/liner, github.com/reeflective/readline),
// or ask the terminal where its cursor is and wait for the answer (github.com/ergochat/readline).
// So keys and drawing are here; what a character is, and how many columns it has, is of github.com/rivo/uniseg
// (Unicode Standard Annexes 11 and 29).
package lineedit

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"glimpse/internal/stdin"

	"golang.org/x/term"
)

// ErrInterrupt is what ReadLine returns at Ctrl-C. What was written of the line is dropped.
var ErrInterrupt = errors.New("interrupted")

// Editor reads lines from a terminal. The terminal is raw while a line is read only, so
// that Ctrl-C is a signal at other times.
type Editor struct {
	// Complete are the lines that one may go on as, for the tab key; nil: none.
	Complete func(line string) []string

	terminal *os.File  // that keys come from
	in       io.Reader // of the terminal
	fd       int       // of the terminal that is drawn on
	pastes   pastes
	held     []byte // read, and not yet obeyed
	begun    bool   // held goes on after a carriage return: a line feed belongs to it
	view     view
	history  history
}

// unknown are the columns of a terminal that does not tell, as a serial line.
const unknown = 80

// Open returns an Editor where in and out are terminals, nil elsewhere. Reading ends with
// ctx.
func Open(ctx context.Context, in io.Reader, out *os.File) *Editor {
	f, ok := in.(*os.File)
	if !ok || out == nil || !term.IsTerminal(int(f.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return &Editor{terminal: f, in: stdin.NewReader(ctx, f), fd: int(out.Fd()), view: view{out: out, columns: unknown}}
}

// Remember reads the lines that are kept in a file, and keeps later ones in it: the latest
// 1,000, without those that a long paste is part of. On an error they are remembered as long
// as the Editor lives.
func (e *Editor) Remember(path string) error { return e.history.openFile(path) }

// ReadLine reads a line after a prompt, without the line end. The error is io.EOF at Ctrl-D
// on an empty line, and ErrInterrupt at Ctrl-C. Text that was pasted comes as it was
// pasted, with its line ends.
func (e *Editor) ReadLine(prompt string) (line string, err error) {
	state, err := term.MakeRaw(int(e.terminal.Fd()))
	if err != nil {
		return "", err
	}
	defer term.Restore(int(e.terminal.Fd()), state)
	io.WriteString(e.view.out, "\x1b[?2004h") // pastes are marked
	defer io.WriteString(e.view.out, "\x1b[?2004l")
	e.view = view{out: e.view.out, columns: e.view.columns, prompt: prompt}
	e.resize()
	line, err = e.edit()
	e.view.leaveLine()
	if err != nil {
		return "", err
	}
	whole := e.pastes.expand(line)
	// What a paste's length stands for is known to this program only. The file is no matter of
	// the conversation: who wants to know hears of it from Remember.
	_ = e.history.addLine(line, whole == line)
	return whole, nil
}

// edit obeys keys up to the end of the line. The line is drawn whenever there are no more.
func (e *Editor) edit() (string, error) {
	l := line{history: e.history.lines, at: len(e.history.lines), complete: e.Complete}
	buffer := make([]byte, 4096)
	for {
		e.view.drawLine(l.text, l.pos)
		for {
			k, n := nextKey(e.held)
			if n == 0 {
				break // the rest is to come
			}
			sequence := e.held[:n]
			e.held = e.held[n:]
			feed := k == '\n' && e.begun
			e.begun = k == '\r'
			switch {
			case feed:
			case k == '\r' || k == '\n':
				e.view.drawLine(l.text, len(l.text))
				return l.text, nil
			case k == keyInterrupt:
				e.view.drawLine("", 0)
				return "", ErrInterrupt
			case k == keyEOF && l.text == "":
				e.view.drawLine("", 0)
				return "", io.EOF
			case k == keyClear:
				e.view.clear()
			case k == keyPaste:
				l.replace(l.pos, l.pos, e.pastes.shown(sequence[len(pasteBegin):n-len(pasteEnd)]))
			default:
				l.obey(k)
			}
		}
		e.view.drawLine(l.text, l.pos)
		n, err := e.in.Read(buffer)
		e.resize()
		e.held = append(e.held, buffer[:n]...)
		if err != nil {
			e.view.drawLine(l.text, len(l.text))
			return "", err
		}
	}
}

// resize tells the view how wide the window is now.
func (e *Editor) resize() {
	if columns, _, err := term.GetSize(e.fd); err == nil && columns > 0 {
		e.view.resize(columns)
	}
}

// completed is what all lines have in common that a line may go on as.
func completed(line string, complete func(string) []string) string {
	candidates := slices.DeleteFunc(complete(line), func(candidate string) bool { return !strings.HasPrefix(candidate, line) })
	if len(candidates) == 0 {
		return line
	}
	common := candidates[0]
	for _, candidate := range candidates {
		for !strings.HasPrefix(candidate, common) {
			common = common[:len(common)-1]
		}
	}
	return common
}
