// Package terminaltest runs programs on a pseudo-terminal and keeps the screen that a
// person would see of them.
package terminaltest

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// second is the second column of a wide character.
const second rune = -1

// Screen is what a terminal of some columns shows, scrollback included. It obeys what the
// programs of this module and golang.org/x/term write: line feeds, carriage returns,
// backspaces, and the control sequences for moving the cursor (A to D), for erasing (J, K)
// and for colours (m). Modes (h, l) are ignored; anything else is an error, which Err tells.
//
// Every character by itself has one column, two where it is East Asian wide, or none, where it
// belongs to the one before it and is left out. A wide one that one column is left for is on
// the next row.
type Screen struct {
	Columns int
	// Reflow tells that lines are wrapped anew when the window changes, as most terminals
	// do. Without, they are cut (xterm).
	Reflow bool

	lines [][]rune // as written, each on one or more rows
	line  int      // the cursor's
	at    int      // its character in the line, which may be the one after the last
	wait  []byte   // of a sequence or character that is not complete
	wrong error
}

// Err is the first thing written that the Screen does not know.
func (s *Screen) Err() error { return s.wrong }

// Write implements io.Writer.
func (s *Screen) Write(p []byte) (int, error) {
	data := append(s.wait, p...)
	s.wait = nil
	for len(data) > 0 {
		n := s.obey(data)
		if n == 0 {
			s.wait = slices.Clone(data)
			break
		}
		data = data[n:]
	}
	return len(p), nil
}

// obey does what the first character or sequence says and returns its bytes; 0 where the
// rest of it is to come.
func (s *Screen) obey(data []byte) int {
	switch data[0] {
	case '\r':
		s.at = s.rowStart()
	case '\n':
		s.down()
	case '\b':
		s.at = max(s.at-1, s.rowStart())
	case '\a':
	case '\x1b':
		return s.sequence(data)
	default:
		if !utf8.FullRune(data) {
			return 0
		}
		r, n := utf8.DecodeRune(data)
		s.put(r)
		return n
	}
	return 1
}

func (s *Screen) sequence(data []byte) int {
	if len(data) < 2 {
		return 0
	}
	end := 2
	for end < len(data) && (data[end] < 0x40 || data[end] > 0x7e) {
		end++
	}
	if end == len(data) {
		return 0
	}
	n := 1
	fmt.Sscanf(string(data[2:end]), "%d", &n)
	switch data[end] {
	case 'A':
		for range n {
			s.up()
		}
	case 'B':
		for range n {
			column := s.column()
			s.down()
			s.to(column)
		}
	case 'C':
		s.to(min(s.column()+n, s.Columns-1))
	case 'D':
		s.to(max(s.column()-n, 0))
	case 'J':
		l := s.current()
		s.lines = s.lines[:s.line+1]
		begun := s.at > 0 && s.at == s.rowStart() && s.at < len(l)
		s.lines[s.line] = l[:min(s.at, len(l))]
		if begun { // the row stays, and the cursor on it
			s.lines[s.line] = append(s.lines[s.line], ' ')
		}
	case 'K':
		l := s.current()
		if end := s.rowStart() + s.Columns; end < len(l) {
			for i := s.at; i < end; i++ {
				l[i] = ' '
			}
		} else {
			s.lines[s.line] = l[:min(s.at, len(l))]
		}
	case 'm', 'h', 'l':
	default:
		if s.wrong == nil {
			s.wrong = fmt.Errorf("screen: unknown sequence %q", data[:end+1])
		}
	}
	return end + 1
}

// current is the cursor's line.
func (s *Screen) current() []rune {
	for len(s.lines) <= s.line {
		s.lines = append(s.lines, nil)
	}
	return s.lines[s.line]
}

func (s *Screen) put(r rune) {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return
	}
	kind := width.LookupRune(r).Kind()
	wide := kind == width.EastAsianWide || kind == width.EastAsianFullwidth
	if wide && s.at%s.Columns == s.Columns-1 {
		s.set(' ')
	}
	s.set(r)
	if wide {
		s.set(second)
	}
}

// set writes one column. Of a wide character nothing is left where half of it is written over.
func (s *Screen) set(r rune) {
	l := s.current()
	for len(l) <= s.at {
		l = append(l, ' ')
	}
	if l[s.at] == second && r != second {
		l[s.at-1] = ' '
	}
	if next := s.at + 1; next < len(l) && l[next] == second {
		l[next] = ' '
	}
	l[s.at] = r
	s.lines[s.line] = l
	s.at++
}

// shown is what a person reads of columns.
func shown(columns []rune) string {
	return string(slices.DeleteFunc(slices.Clone(columns), func(r rune) bool { return r == second }))
}

// rowStart is the character that the cursor's row begins with. After the last column the
// cursor is on that row until something is written.
func (s *Screen) rowStart() int {
	if s.at > 0 && s.at%s.Columns == 0 && s.at == len(s.current()) {
		return s.at - s.Columns
	}
	return s.at - s.at%s.Columns
}

func (s *Screen) column() int { return min(s.at-s.rowStart(), s.Columns-1) }

func (s *Screen) to(column int) { s.at = s.rowStart() + column }

func (s *Screen) up() {
	column, start := s.column(), s.rowStart()
	switch {
	case start > 0:
		start -= s.Columns
	case s.line > 0:
		s.line--
		start = max(0, len(s.lines[s.line])-1) / s.Columns * s.Columns
	}
	s.at = start + column
}

// down goes to the start of the next row.
func (s *Screen) down() {
	if next := s.rowStart() + s.Columns; next < len(s.current()) {
		s.at = next
		return
	}
	s.line, s.at = s.line+1, 0
	s.current()
}

// Resize changes the width of the window.
func (s *Screen) Resize(columns int) {
	if !s.Reflow {
		var cut [][]rune
		line, at := 0, 0
		for i, l := range s.lines {
			if i == s.line {
				line, at = len(cut)+s.rowStart()/s.Columns, min(s.column(), columns-1)
			}
			for {
				row := l[:min(len(l), s.Columns)]
				cut = append(cut, slices.Clone(row[:min(len(row), columns)]))
				if l = l[len(row):]; len(l) == 0 {
					break
				}
			}
		}
		s.lines, s.line, s.at = cut, line, at
	}
	s.Columns = columns
}

// Rows are the rows of the screen, without the spaces at their ends and without empty rows
// at the end.
func (s *Screen) Rows() []string {
	var rows []string
	for _, l := range s.lines {
		for {
			row := l[:min(len(l), s.Columns)]
			rows = append(rows, strings.TrimRight(shown(row), " "))
			if l = l[len(row):]; len(l) == 0 {
				break
			}
		}
	}
	for len(rows) > 0 && rows[len(rows)-1] == "" {
		rows = rows[:len(rows)-1]
	}
	return rows
}

// String are the Rows as a text.
func (s *Screen) String() string { return strings.Join(s.Rows(), "\n") }

// Cursor is the row and the column of the cursor, from 0.
func (s *Screen) Cursor() (row, column int) {
	for _, l := range s.lines[:min(s.line, len(s.lines))] {
		row += max(1, (len(l)+s.Columns-1)/s.Columns)
	}
	return row + s.rowStart()/s.Columns, s.column()
}
