package progress

import (
	"io"
	"os"
	"sync"

	"glimpse/internal/printable"

	"golang.org/x/term"
)

// Output is a writer that a bar and messages, also of other goroutines, share: a
// message does not run into the line that the bar redraws. Messages quote names and
// texts of files from anywhere; what a terminal would obey in them is shown instead
// (package printable), in a log as on a terminal.
type Output struct {
	w    io.Writer
	text *printable.Writer // to w
	mu   sync.Mutex
	// line tells that the cursor is at the end of a bar's line.
	line bool
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
	if o.line {
		io.WriteString(o.w, "\r\x1b[K")
		o.line = false
	}
	return o.text.Write(p)
}

// draw shows a bar's line, of printable text, which the next one replaces; end goes to the line after it.
func (o *Output) draw(line string, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The rest of the line is erased after writing, not before, which would flicker.
	io.WriteString(o.w, "\r"+line+"\x1b[K")
	if o.line = !end; end {
		io.WriteString(o.w, "\n")
	}
}

// terminal is the terminal written to, nil if it is none.
func (o *Output) terminal() *os.File {
	if f, ok := o.w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}
