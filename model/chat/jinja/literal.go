package jinja

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	integerLiteral = regexp.MustCompile(`^\d+(?:_\d+)*`)
	floatLiteral   = regexp.MustCompile(`^\d+(?:_\d+)*(?:(?:\.\d+(?:_\d+)*)?[eE][+-]?\d+(?:_\d+)*|\.\d+(?:_\d+)*)`)
)

// readNumber reads the number that s starts with. After a dot it is no float:
// x.0.1 is the element 1 of the element 0.
func readNumber(s string, afterDot bool) (v value, n int, err error) {
	m := floatLiteral.FindString(s)
	if m != "" && !afterDot {
		v, err = strconv.ParseFloat(strings.ReplaceAll(m, "_", ""), 64)
	} else {
		m = integerLiteral.FindString(s)
		v, err = strconv.ParseInt(strings.ReplaceAll(m, "_", ""), 10, 64)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("found %s, want a number of 64 bits", quoted(m))
	}
	return v, len(m), nil
}

// readString reads the string literal that s starts with.
func readString(s string) (text string, n int, err error) {
	for n = 1; n < len(s); n++ {
		switch s[n] {
		case '\\':
			n++
		case s[0]:
			text, err = unescape(s[1:n])
			return text, n + 1, err
		}
	}
	return "", 0, fmt.Errorf("found a string without an end, want %c", s[0])
}

var escapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape is what Jinja does to the inside of a literal; a backslash before what is no
// escape stays.
func unescape(s string) (string, error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			b.WriteString(s)
			return b.String(), nil
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		c := s[0] // a literal never ends inside an escape
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		text, known := escapes[c]
		switch rest := s[1:]; {
		case known:
			b.WriteString(text)
		case digits > 0:
			code, err := strconv.ParseUint(rest[:min(digits, len(rest))], 16, 32)
			if err != nil || len(rest) < digits || code > utf8.MaxRune {
				return "", fmt.Errorf(`found \%c in a string, want %d digits of a character after it`, c, digits)
			}
			b.WriteRune(rune(code))
			s = s[digits:]
		case c >= utf8.RuneSelf || c >= '0' && c <= '7' || c == 'N':
			r, _ := utf8.DecodeRuneInString(s)
			return "", fmt.Errorf("the escape %s in a string is not supported", quoted(`\`+string(r)))
		default:
			b.WriteString(`\` + string(rune(c)))
		}
		s = s[1:]
	}
}
