package progress

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Output is a writer that a bar and messages, also of other goroutines, share: a
// message does not run into the line that the bar redraws.
type Output struct {
	w  io.Writer
	mu sync.Mutex
	// line tells that the cursor is at the end of a bar's line.
	line bool
}

// NewOutput shares w. It returns w where that is an Output already.
func NewOutput(w io.Writer) *Output {
	if o, ok := w.(*Output); ok {
		return o
	}
	return &Output{w: w}
}

// Write writes a message, which should end its line.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.line {
		io.WriteString(o.w, "\r\x1b[K")
		o.line = false
	}
	return o.w.Write(p)
}

// draw shows a bar's line, which the next one replaces; end goes to the line after it.
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
