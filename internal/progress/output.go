package progress

import (
	"io"
	"log/slog"
	"os"
	"sync"

	"glimpse/internal/printable"
	"glimpse/internal/terminal"
)

// Output is a writer that a bar and messages, also of other goroutines, share: a
// message does not run into the line that the bar redraws. Messages quote names and
// texts of files from anywhere; what a terminal would obey in them is shown instead
// (package printable), in a log as on a terminal.
type Output struct {
	w    io.Writer
	text *printable.Writer // to w
	mu   sync.Mutex
	// line tells that the cursor is on a bar's line, at its start.
	line bool

	talk  Talk
	log   *slog.Logger // where lines are JSON
	begun []byte       // of a line of the log
}

// Stderr is the standard error of the process, on which all of it meets.
var Stderr = NewOutput(os.Stderr)

// NewOutput shares w. It returns w where that is an Output already.
func NewOutput(w io.Writer) *Output {
	if o, ok := w.(*Output); ok {
		return o
	}
	return &Output{w: w, text: printable.NewWriter(w)}
}

// Write writes a message, which should end its line.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.talk.Quiet {
		return len(p), nil
	}
	if o.log != nil {
		o.logLines(p)
		return len(p), nil
	}
	o.erase()
	return o.text.Write(p)
}

// Clear erases a bar's line, which would be left on the terminal of a program that ends.
func (o *Output) Clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.erase()
}

func (o *Output) erase() {
	if o.line {
		io.WriteString(o.w, "\r\x1b[J")
		o.line = false
	}
}

// drawBar shows a bar's line, of printable text, which the next one replaces; end goes to the line after it.
//
// The cursor waits at the start of the line: where the window narrows, terminals that
// wrap the line anew keep the cursor on its first row and the others on the same one, so
// that erasing from there to the end of the screen leaves nothing of it. The rest is
// erased after writing, not before, which would flicker.
func (o *Output) drawBar(line string, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	after := "\x1b[J\r"
	if end {
		after = "\x1b[J\n"
	}
	io.WriteString(o.w, "\r"+line+after)
	o.line = !end
}

// Terminal is the terminal written to, nil if it is none.
func (o *Output) Terminal() *os.File {
	if f, ok := o.w.(*os.File); ok && terminal.Is(f) {
		return f
	}
	return nil
}
