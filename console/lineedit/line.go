package lineedit

import (
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
)

// line is a line that is edited. The cursor stands between characters as a person sees
// them, which may be several of Unicode's.
type line struct {
	text string
	pos  int // bytes before the cursor

	history  []string
	at       int    // of the history; its length: the line that was begun
	begun    string // the line that was begun, while another is shown
	complete func(string) []string
}

// obey does what a key says.
func (l *line) obey(k key) {
	switch k {
	case keyLeft:
		l.pos = l.before()
	case keyRight:
		l.pos = l.characterEnd()
	case keyWordLeft:
		l.pos = l.wordStart()
	case keyWordRight:
		l.pos = l.wordEnd()
	case keyHome:
		l.pos = 0
	case keyEnd:
		l.pos = len(l.text)
	case keyUp:
		l.show(l.at - 1)
	case keyDown:
		l.show(l.at + 1)
	case keyBackspace:
		l.replace(l.before(), l.pos, "")
	case keyDelete, keyEOF:
		l.replace(l.pos, l.characterEnd(), "")
	case keyDeleteWord:
		l.replace(l.wordStart(), l.pos, "")
	case keyDeleteStart:
		l.replace(0, l.pos, "")
	case keyDeleteEnd:
		l.replace(l.pos, len(l.text), "")
	case keyTranspose:
		l.transpose()
	case '\t':
		if l.complete != nil {
			l.replace(0, l.pos, completed(l.text[:l.pos], l.complete))
		}
	default:
		if k >= ' ' && !unicode.IsControl(rune(k)) {
			l.replace(l.pos, l.pos, string(rune(k)))
		}
	}
}

// replace puts text in the place of some, and the cursor after it.
func (l *line) replace(from, to int, text string) {
	l.text = l.text[:from] + text + l.text[to:]
	l.pos = from + len(text)
}

// before is where the character before the cursor begins.
func (l *line) before() int {
	start := 0
	for at, rest, state := 0, l.text[:l.pos], -1; rest != ""; {
		var c string
		c, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		start, at = at, at+len(c)
	}
	return start
}

// characterEnd is where the character after the cursor ends.
func (l *line) characterEnd() int {
	c, _, _, _ := uniseg.FirstGraphemeClusterInString(l.text[l.pos:], -1)
	return l.pos + len(c)
}

// wordStart is where the word before the cursor begins.
func (l *line) wordStart() int {
	return strings.LastIndexByte(strings.TrimRight(l.text[:l.pos], " "), ' ') + 1
}

// wordEnd is where the word after the one at the cursor begins.
func (l *line) wordEnd() int {
	rest := l.text[l.pos:]
	if i := strings.IndexByte(rest, ' '); i >= 0 {
		return len(l.text) - len(strings.TrimLeft(rest[i:], " "))
	}
	return len(l.text)
}

// transpose swaps the characters around the cursor, or the two before it at the end.
func (l *line) transpose() {
	if l.pos == len(l.text) {
		l.pos = l.before()
	}
	first, last := l.before(), l.characterEnd()
	if first == l.pos || last == l.pos {
		l.pos = last
		return
	}
	l.replace(first, last, l.text[l.pos:last]+l.text[first:l.pos])
}

// show shows a line of the history, or the one that was begun.
func (l *line) show(at int) {
	if at < 0 || at > len(l.history) {
		return
	}
	if l.at == len(l.history) {
		l.begun = l.text
	}
	l.at, l.text = at, l.begun
	if at < len(l.history) {
		l.text = l.history[at]
	}
	l.pos = len(l.text)
}
