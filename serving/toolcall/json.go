package toolcall

import (
	"encoding/json"
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
	inEnd    // a comma or the end of what is open
)

// scanner checks JSON byte by byte, as encoding/json does it of the whole. The zero value waits
// for a value; an object or an array is complete when nothing is open any more.
type scanner struct {
	open    []byte // '{' and '[' that are not closed
	at      int
	key     bool // the string is a key
	escaped bool
	hex     int // digits of \u that come
	scalar  []byte
}

const (
	maxDepth  = 1000
	maxScalar = 1000 // bytes of a number
)

// step takes the next byte. It is false where no JSON goes on with it.
func (s *scanner) step(c byte) bool {
	switch {
	case s.at == inString:
		return s.inString(c)
	case s.at == inScalar:
		if c != ',' && c != ']' && c != '}' && !isSpace(c) {
			s.scalar = append(s.scalar, c)
			return isScalar(s.scalar)
		}
		if !json.Valid(s.scalar) {
			return false
		}
		s.at = inEnd
		return s.step(c)
	case isSpace(c):
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
	case ']':
		return s.at == inFirst && s.pop(c)
	default:
		s.at, s.scalar = inScalar, append(s.scalar[:0], c)
		return isScalar(s.scalar)
	}
	return true
}

// isScalar tells whether a word, or what is made of a number's characters, may begin so.
func isScalar(text []byte) bool {
	for _, word := range []string{"true", "false", "null"} {
		if strings.HasPrefix(word, string(text)) {
			return true
		}
	}
	return len(text) <= maxScalar && strings.IndexByte("+-.eE0123456789", text[len(text)-1]) >= 0 && (text[0] == '-' || text[0] <= '9')
}

func (s *scanner) inString(c byte) bool {
	switch {
	case s.hex > 0:
		s.hex--
		return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
	case s.escaped:
		s.escaped = false
		switch c {
		case 'u':
			s.hex = 4
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		default:
			return false
		}
	case c == '\\':
		s.escaped = true
	case c == '"':
		if s.at = inEnd; s.key {
			s.at = inColon
		}
	}
	return c >= ' '
}

func (s *scanner) pop(c byte) bool {
	last := len(s.open) - 1
	if last < 0 || s.open[last] != c-2 { // '{'+2 is '}', '['+2 is ']'
		return false
	}
	s.open, s.at = s.open[:last], inEnd
	return true
}

// object reads the object of a call, {"name": …, "arguments": {…}}, of text that grows.
type object struct {
	scanner
	pos    int // bytes of the text that are read
	mark   int // where the key or value begins
	member string
	seen   map[string]bool
	name   string
	args   string // where they came before the name
}

type progress int

const (
	unfinished progress = iota
	broken              // no call
	begun               // the name is known, and text[pos-1] is the { of the arguments
	complete            // the } at text[pos-1] is the object's end
)

// read goes on in text, which begins where the object began or where pos was set to 0.
func (o *object) read(text string) progress {
	for o.pos < len(text) {
		if o.pos >= maxHeld {
			return broken
		}
		before, depth, c := o.at, len(o.open), text[o.pos]
		if !o.step(c) {
			return broken
		}
		o.pos++
		switch {
		case len(o.open) == 0:
			if o.name == "" {
				return broken
			}
			return complete
		case depth == 2 && len(o.open) == 1 && o.member == "arguments":
			o.args = text[o.mark:o.pos]
		case depth != 1:
		case before != inString && o.at == inString && o.key:
			o.mark = o.pos - 1
		case before == inString && o.at == inColon:
			if o.member = unquote(text[o.mark:o.pos]); o.member == "parameters" {
				o.member = "arguments"
			}
			if !members[o.member] || o.seen[o.member] {
				return broken
			}
			if o.seen == nil {
				o.seen = map[string]bool{}
			}
			o.seen[o.member] = true
		case before == inValue && o.at != inValue:
			o.mark = o.pos - 1
			if o.member == "name" && c != '"' || o.member == "arguments" && c != '{' {
				return broken
			}
			if o.member == "arguments" && o.name != "" {
				return begun
			}
		case before == inString && o.at == inEnd && o.member == "name":
			if o.name = unquote(text[o.mark:o.pos]); o.name == "" {
				return broken
			}
		}
	}
	return unfinished
}

// members are the keys of a call's object. Some models write an id, or "type": "function".
var members = map[string]bool{"name": true, "arguments": true, "id": true, "type": true}

func unquote(text string) (s string) {
	_ = json.Unmarshal([]byte(text), &s) // the scanner has checked it
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
