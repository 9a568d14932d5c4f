package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"

	"glimpse/internal/bytesize"
	"glimpse/internal/printable"
	"glimpse/internal/terminal"
)

// Bytes is the noun of bars that count bytes, which are shown with their units.
const Bytes = "bytes"

const (
	redrawEvery = 100 * time.Millisecond
	logEvery    = 10 * time.Second
	logShares   = 10 // log lines of a short loop: one for each tenth
	barWidth    = 20 // characters between the brackets
	minBarWidth = 5  // below, there is no bar
)

// Bar shows the progress of one loop. Its methods may be called concurrently.
type Bar struct {
	out     *Output
	noun    string
	total   int64      // ≤ 0: unknown
	columns func() int // width of the terminal; nil when w is not one
	after   time.Duration

	mu      sync.Mutex
	start   time.Time
	last    time.Time // of the last line shown; zero: show the next at once
	logged  int64     // tenths of the total at the last log line
	drawn   int       // columns of the terminal at the last line
	width   int       // of the bar
	done    int64
	skipped int64 // part of done that this run did not do
	suffix  string
	closed  bool
}

// Option changes how a Bar reports.
type Option func(*Bar)

// After is of a loop that is mostly short: nothing is shown before d, and nothing stays on a terminal
// when it is done.
func After(d time.Duration) Option { return func(b *Bar) { b.after = d } }

// New starts a bar for total units named noun (in the plural: "steps", or Bytes); the clock
// starts now. A total of 0 or less is an unknown one: no share and no remaining
// time are shown. The bar redraws one line if w is a terminal. Errors of w are
// ignored: progress is never worth stopping for.
func New(w io.Writer, noun string, total int64, opts ...Option) *Bar {
	b := &Bar{out: NewOutput(w), noun: noun, total: total, start: time.Now()}
	if f := b.out.Terminal(); f != nil && !b.out.talk.JSON {
		b.columns = func() int { return terminal.Columns(f) }
	}
	for _, opt := range opts {
		opt(b)
	}
	if b.columns == nil {
		b.last = b.start
	}
	return b
}

// Add counts n more units as done.
func (b *Bar) Add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done += n
	if !b.closed && b.due() {
		b.show()
	}
}

// due tells whether a line is to be shown, not before it is After: on a terminal ten times a second, elsewhere with
// every tenth of the total, but for the last, which Done shows, and after 10 seconds.
func (b *Bar) due() bool {
	since := time.Since(b.last)
	switch {
	case time.Since(b.start) < b.after:
		return false
	case b.columns != nil:
		return since >= redrawEvery
	case b.after > 0: // no tenths: nobody waits for it
		return since >= logEvery || b.last.Equal(b.start)
	}
	return since >= logEvery || b.done < b.total && b.tenths() > b.logged
}

// tenths of the total that are done; 0 where the total is not known.
func (b *Bar) tenths() int64 {
	if b.total <= 0 {
		return 0
	}
	return int64(logShares * float64(b.done) / float64(b.total))
}

// Skip counts n units as done before this run began: they belong to the share but
// not to the rate.
func (b *Bar) Skip(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done += n
	b.skipped += n
	b.logged = b.tenths()
}

// SetText sets a short text, such as the current loss, at the end of the line. It
// is shown with the next line; line breaks and other control characters become
// spaces.
func (b *Bar) SetText(text string) {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.suffix = text
}

// Done shows the final count with the time taken, and ends the line. Further calls
// of any method show nothing.
func (b *Bar) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	if b.after == 0 {
		b.show()
	} else if b.columns != nil && !b.last.IsZero() {
		b.out.Clear()
	}
}

func (b *Bar) show() {
	b.last, b.logged = time.Now(), b.tenths()
	if !b.out.bars() {
		return
	}
	line := printable.Text(b.facts(b.last.Sub(b.start)))
	if b.out.log != nil {
		b.out.progressed(strings.TrimSpace(line), b.done, b.total, b.noun)
		return
	}
	if b.columns == nil {
		fmt.Fprintln(b.out, line)
		return
	}
	columns := b.columns()
	room := max(columns-1, 0) // a full line makes some terminals wrap
	if columns != b.drawn {
		b.drawn, b.width = columns, barWidth
	}
	// The facts have the room first. A bar that got shorter stays so: it does not jump with
	// the lengths of the numbers.
	if b.width = min(b.width, room-len([]rune(line))-len("[] ")); b.total > 0 && b.width >= minBarWidth {
		line = drawBar(float64(b.done)/float64(b.total), b.width) + " " + line
	}
	if runes := []rune(line); len(runes) > room {
		line = string(runes[:room])
	}
	b.out.drawBar(line, b.closed)
}

// facts formats what is known after the elapsed time.
func (b *Bar) facts(elapsed time.Duration) string {
	var parts []string
	count := func(n int64) string { return fmt.Sprint(n) }
	width, noun := len(count(b.total)), " "+b.noun
	if b.noun == Bytes {
		count, width, noun = bytesize.FormatSize, 0, ""
	}
	if b.total > 0 {
		parts = append(parts, fmt.Sprintf("%*s/%s%s", width, count(b.done), count(b.total), noun),
			fmt.Sprintf("%3d%%", int64(100*float64(b.done)/float64(b.total))))
	} else {
		parts = append(parts, count(b.done)+noun)
	}
	rate := 0.0
	if s := elapsed.Seconds(); s > 0 {
		rate = float64(b.done-b.skipped) / s
	}
	if rate > 0 {
		parts = append(parts, formatRate(rate, b.noun))
	}
	switch {
	case b.closed:
		parts = append(parts, "in "+Rounded(elapsed).String())
	case rate > 0 && b.total > b.done:
		left := float64(b.total-b.done) / rate // seconds; may exceed a Duration
		if left < float64(1<<62)/float64(time.Second) {
			parts = append(parts, Rounded(time.Duration(left*float64(time.Second))).String()+" left")
		}
	}
	if b.suffix != "" {
		parts = append(parts, b.suffix)
	}
	return strings.Join(parts, "  ")
}

func drawBar(share float64, width int) string {
	filled := int(min(max(share, 0), 1) * float64(width))
	bar := strings.Repeat("=", filled)
	if filled < width {
		bar += ">"
	}
	return fmt.Sprintf("[%-*s]", width, bar)
}

// formatRate shows a slow rate as the time of one unit: "100 s each" says more than
// "0.01 steps/s".
func formatRate(rate float64, noun string) string {
	switch {
	case noun == Bytes:
		return bytesize.Rate(rate) + "/s"
	case rate < 0.1:
		return fmt.Sprintf("%.0f s each", 1/rate)
	case rate < 100:
		return fmt.Sprintf("%.3g %s/s", rate, noun)
	}
	return fmt.Sprintf("%.0f %s/s", rate, noun)
}

// Rounded is a time as people read it: in seconds, below ten seconds in tenths.
func Rounded(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(time.Second / 10)
	}
	return d.Round(time.Second)
}
