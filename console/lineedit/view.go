package lineedit

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"glimpse/internal/printable"

	"github.com/rivo/uniseg"
)

// view draws a line after its prompt, on as many rows as it takes. It writes what has changed,
// and nothing where nothing has.
type view struct {
	out     io.Writer
	columns int // of the window
	prompt  string

	drawn    []cell
	row, col int  // of the cursor; the row of the prompt is 0
	last     bool // the cursor is behind the last character
	buffer   strings.Builder
}

// cell is what is drawn of one character, or of the prompt.
type cell struct {
	text     string
	start    int // byte of the line
	row, col int
	width    int
	// Terminals disagree about how wide characters are that are made of several, as
	// families of emojis are: after them the column is said.
	say bool
}

// placeCells is where the characters of a line are drawn.
func (v *view) placeCells(text string) []cell {
	var cells []cell
	row, col := 0, 0
	add := func(c cell) {
		if col > 0 && col+c.width > v.columns {
			row, col = row+1, 0
		}
		c.row, c.col = row, col
		cells = append(cells, c)
		col += c.width
	}
	add(cell{text: v.prompt, start: -1, width: uniseg.StringWidth(v.prompt)})
	for start, state := 0, -1; start < len(text); {
		one, _, width, next := uniseg.FirstGraphemeClusterInString(text[start:], state)
		state = next
		c := cell{text: one, start: start, width: width}
		if shown := printable.Text(one); shown != one {
			c.text, c.width = shown, uniseg.StringWidth(shown)
		} else if utf8.RuneCountInString(one) > 1 {
			alone := 0
			for _, r := range one {
				alone += uniseg.StringWidth(string(r))
			}
			c.say = alone != width
		}
		add(c)
		start += len(one)
	}
	return cells
}

// cursorAfter is where the cursor is behind the last of the characters drawn.
func (v *view) cursorAfter(cells []cell) (row, col int) {
	if len(cells) == 0 {
		return 0, 0
	}
	last := cells[len(cells)-1]
	if row, col = last.row, last.col+last.width; col >= v.columns {
		row, col = row+1, 0
	}
	return row, col
}

// drawLine shows a line with the cursor before a byte of it.
func (v *view) drawLine(text string, pos int) {
	cells := v.placeCells(text)
	same := 0
	for same < min(len(cells), len(v.drawn)) && cells[same] == v.drawn[same] {
		same++
	}
	if same < max(len(cells), len(v.drawn)) {
		v.move(v.cursorAfter(cells[:same]))
	}
	if same < len(v.drawn) {
		v.buffer.WriteString("\x1b[J")
	}
	for _, c := range cells[same:] {
		v.putCell(c)
	}
	v.drawn, v.last = cells, true
	row, col := v.cursorAfter(cells)
	for _, c := range cells {
		if c.start >= pos {
			row, col, v.last = c.row, c.col, false
			break
		}
	}
	v.move(row, col)
	v.flush()
}

// putCell writes a character where the cursor is, or at the start of the next row.
func (v *view) putCell(c cell) {
	if c.row > v.row { // only a wide character leaves columns free
		v.buffer.WriteString(strings.Repeat(" ", v.columns-v.col))
		v.wrap()
	}
	v.buffer.WriteString(c.text)
	v.col += c.width
	switch {
	case v.col >= v.columns:
		v.wrap()
	case c.say:
		fmt.Fprintf(&v.buffer, "\r\x1b[%dC", v.col)
	}
}

// wrap goes from behind the last column to the next row. A terminal does so when something
// is written there, and then it knows that the rows are one line, for when the window changes.
func (v *view) wrap() {
	v.buffer.WriteString(" \r")
	v.row, v.col = v.row+1, 0
}

// move moves the cursor.
func (v *view) move(row, col int) {
	step := func(n int, forth, back byte) {
		switch {
		case n > 0:
			fmt.Fprintf(&v.buffer, "\x1b[%d%c", n, forth)
		case n < 0:
			fmt.Fprintf(&v.buffer, "\x1b[%d%c", -n, back)
		}
	}
	step(row-v.row, 'B', 'A')
	step(col-v.col, 'C', 'D')
	v.row, v.col = row, col
}

func (v *view) flush() {
	if v.buffer.Len() > 0 {
		io.WriteString(v.out, v.buffer.String())
		v.buffer.Reset()
	}
}

// leaveLine leaves the line, whose last row the cursor is on.
func (v *view) leaveLine() {
	v.buffer.WriteString("\r\n")
	v.flush()
	v.drawn = nil
}

// clear erases the screen; the next draw begins at its top.
func (v *view) clear() {
	v.buffer.WriteString("\x1b[2J\x1b[H")
	v.drawn, v.row, v.col = nil, 0, 0
}

// resize is for a window that has changed. Most terminals have then wrapped the line anew,
// with the cursor on the same character: all is drawn from where the prompt is now.
func (v *view) resize(columns int) {
	before := v.columns
	v.columns = columns
	if columns == before || v.drawn == nil {
		return
	}
	at := v.row*before + v.col
	if v.last && v.col > 0 && at%columns == 0 {
		at-- // of a row that is now full the cursor is on the last column
	}
	v.row, v.col = at/columns, 0
	v.buffer.WriteString("\r")
	v.move(0, 0)
	v.buffer.WriteString("\x1b[J")
	v.drawn = nil
}
