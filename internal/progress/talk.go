package progress

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"glimpse/internal/printable"
)

// Talk is how much is said beside results, and in which form.
type Talk struct {
	Quiet   bool // nothing but errors
	Verbose bool // details, too; see Detail
	NoBars  bool // no progress, neither bars nor log lines
	JSON    bool // each line is a JSON object: time, level, msg, and numbers of a progress
}

// SetTalk is called before anything is said.
func (o *Output) SetTalk(t Talk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.talk, o.log = t, nil
	if t.JSON {
		o.log = slog.New(slog.NewJSONHandler(o.w, nil))
	}
}

// Detail says what only a verbose output says.
func (o *Output) Detail(format string, args ...any) {
	if o.talk.Verbose && !o.talk.Quiet {
		fmt.Fprintf(o, format+"\n", args...)
	}
}

// Error says what went wrong, which a quiet output does, too.
func (o *Output) Error(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.erase()
	if o.log == nil {
		name, rest, ok := strings.Cut(text, ": ")
		if ok && printable.Coloured(o.Terminal()) {
			io.WriteString(o.w, printable.Red(name+":")+" ")
			text = rest
		}
		fmt.Fprintln(o.text, text)
		return
	}
	o.flush()
	o.log.Error(printable.Text(text))
}

// WriteHeading writes a heading, see [printable.Heading].
func (o *Output) WriteHeading(text string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.talk.Quiet {
		return nil
	}
	if o.log != nil {
		o.logLines([]byte(text))
		return nil
	}
	o.erase()
	return o.text.WriteHeading(text)
}

// bars tells that progress is shown.
func (o *Output) bars() bool { return !o.talk.Quiet && !o.talk.NoBars }

// logLines logs the lines that p ends, and keeps what it begins.
func (o *Output) logLines(p []byte) {
	o.begun = append(o.begun, p...)
	for {
		line, rest, ended := bytes.Cut(o.begun, []byte("\n"))
		if !ended {
			return
		}
		o.begun = rest
		if len(bytes.TrimSpace(line)) > 0 {
			o.log.Info(printable.Text(string(line)))
		}
	}
}

// flush logs a line that was begun and not ended.
func (o *Output) flush() {
	if len(o.begun) > 0 {
		o.logLines([]byte("\n"))
	}
}

// progressed logs a bar's line with its numbers.
func (o *Output) progressed(line string, done, total int64, noun string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
	o.log.Info(line, "done", done, "total", max(total, 0), "unit", noun)
}
