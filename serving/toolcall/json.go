package toolcall

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Where in a JSON value the scanner is.
const (
	inValue    = iota // a value comes
	inFirst           // a value or the end of the array
	inFirstKey        // a key or the end of the object
	inKey             // a key
	inColon
	inString
	inScalar // a number or a word
	inEnd    // a comma or the end of the open value
)

// scanner checks JSON byte by byte, as encoding/json does it of the whole, and writes it to out. It repairs what models write:
// control characters and needless escapes in strings, Python's words. The zero value waits
// for a value; an object or an array is complete when nothing is open any more.
type scanner struct {
	open   []byte // '{' and '[' that are not closed
	at     int
	key    bool   // the string is a key
	escape string // that has begun: \, or \u and up to three digits
	scalar []byte
	out    []byte
}

const (
	maxDepth  = 1000
	maxScalar = 1000 // bytes of a number
)

// stepByte takes the next byte. It is false where no JSON goes on with it.
func (s *scanner) stepByte(c byte) bool {
	switch {
	case s.at == inString:
		s.inString(c)
		return true
	case s.at == inScalar:
		if c != ',' && c != ']' && c != '}' && !isSpace(c) {
			return s.inScalar(c)
		}
		if word, ok := pythonWords[string(s.scalar)]; ok {
			s.out = append(s.out, word...)
		} else if !json.Valid(s.scalar) {
			return false
		}
		s.at = inEnd
		return s.stepByte(c)
	}
	if n := len(s.out); !s.structure(c) {
		s.out = s.out[:n]
		return false
	}
	return true
}

// structure takes a byte between strings and scalars.
func (s *scanner) structure(c byte) bool {
	if s.at == inValue || s.at == inFirst {
		if isScalar([]byte{c}) {
			s.at, s.scalar = inScalar, s.scalar[:0]
			return s.inScalar(c)
		}
	}
	if s.out = append(s.out, c); isSpace(c) {
		return true
	}
	switch s.at {
	case inColon:
		s.at = inValue
		return c == ':'
	case inKey, inFirstKey:
		if c == '"' {
			s.at, s.key = inString, true
			return true
		}
		return c == '}' && s.at == inFirstKey && s.pop(c)
	case inEnd:
		if c != ',' {
			return s.pop(c)
		}
		if s.at = inValue; s.open[len(s.open)-1] == '{' {
			s.at = inKey
		}
		return true
	}
	switch c {
	case '{', '[':
		s.open = append(s.open, c)
		if s.at = inFirst; c == '{' {
			s.at = inFirstKey
		}
		return len(s.open) <= maxDepth
	case '"':
		s.at, s.key = inString, false
		return true
	}
	return c == ']' && s.at == inFirst && s.pop(c)
}

// inScalar takes a byte of a number or a word. Python's words are written when they are complete.
func (s *scanner) inScalar(c byte) bool {
	if !isScalar(append(s.scalar, c)) {
		return false
	}
	s.scalar = append(s.scalar, c)
	if first := s.scalar[0]; first < 'A' || first > 'Z' {
		s.out = append(s.out, c)
	}
	return true
}

// isScalar tells whether a word, or what is made of a number's characters, may begin so.
func isScalar(text []byte) bool {
	for _, word := range []string{"true", "false", "null", "True", "False", "None"} {
		if strings.HasPrefix(word, string(text)) {
			return true
		}
	}
	return len(text) <= maxScalar && strings.IndexByte("+-.eE0123456789", text[len(text)-1]) >= 0 && (text[0] == '-' || '0' <= text[0] && text[0] <= '9')
}

func (s *scanner) inString(c byte) {
	switch {
	case s.escape == `\`:
		switch c {
		case 'u':
			s.escape = `\u`
			return
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			s.out = append(s.out, '\\', c)
			s.escape = ""
			return
		case '\'':
			s.out = append(s.out, c)
			s.escape = ""
			return
		}
	case s.escape != "":
		if '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' {
			if s.escape += string(c); len(s.escape) == len(`\u0000`) {
				s.out = append(s.out, s.escape...)
				s.escape = ""
			}
			return
		}
	case c == '\\':
		s.escape = `\`
		return
	}
	if s.escape != "" { // which is none
		s.out = append(append(s.out, '\\'), s.escape...)
		s.escape = ""
		s.inString(c)
		return
	}
	if s.out = appendEscaped(s.out, c, c == '"'); c == '"' {
		if s.at = inEnd; s.key {
			s.at = inColon
		}
	}
}

// unwritten is what was read and is not in out yet.
func (s *scanner) unwritten() string {
	if s.at == inScalar && s.scalar[0] >= 'A' && s.scalar[0] <= 'Z' {
		return string(s.scalar)
	}
	return s.escape
}

func (s *scanner) pop(c byte) bool {
	last := len(s.open) - 1
	if last < 0 || s.open[last] != c-2 { // '{'+2 is '}', '['+2 is ']'
		return false
	}
	s.open, s.at = s.open[:last], inEnd
	return true
}

// objectIn is the JSON of a text that is an object and nothing else, or empty.
func objectIn(text string) (json string, ok bool) {
	text = strings.Trim(text, space)
	if text == "" {
		return "{}", true
	}
	var s scanner
	for i := range len(text) {
		if i == 0 && text[0] != '{' || i > 0 && len(s.open) == 0 || !s.stepByte(text[i]) {
			return "", false
		}
	}
	return string(s.out), len(s.open) == 0
}

// escape is text within a JSON string. A text may be escaped in pieces.
func escape(text string) string {
	var out []byte
	for i := range len(text) {
		out = appendEscaped(out, text[i], false)
	}
	return string(out)
}

// appendEscaped adds a byte of a text within a JSON string, or as it is.
func appendEscaped(out []byte, c byte, plain bool) []byte {
	switch {
	case plain:
		return append(out, c)
	case c == '"' || c == '\\':
		return append(out, '\\', c)
	case c == '\n':
		return append(out, '\\', 'n')
	case c < ' ':
		return fmt.Appendf(out, `\u%04x`, c)
	}
	return append(out, c)
}

func unquote(text string) (s string) {
	_ = json.Unmarshal([]byte(text), &s) // the scanner has checked it
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
