package jinja

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	floatLiteral   = regexp.MustCompile(`^(?i)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)`)
	integerLiteral = regexp.MustCompile(`^(?i)(?:0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*)`)
)

// maxDigits of an integer are read or printed, as in Python.
const maxDigits = 4300

// readNumber reads the number that s starts with. After a dot it is no float:
// x.0.1 is the element 1 of the element 0.
func readNumber(s string, afterDot bool) (v value, n int, err error) {
	if m := floatLiteral.FindString(s); m != "" && !afterDot {
		f, err := strconv.ParseFloat(strings.ReplaceAll(m, "_", ""), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, 0, err
		}
		return f, len(m), nil // out of range is inf, or 0
	}
	m := integerLiteral.FindString(s)
	if len(m) > maxDigits {
		return nil, 0, fmt.Errorf("found a number of %d digits, want at most %d", len(m), maxDigits)
	}
	text := strings.ReplaceAll(m, "_", "")
	if strings.Trim(text, "0") == "" {
		text = "0" // not an octal number
	}
	i, ok := new(big.Int).SetString(text, 0)
	if !ok {
		return nil, 0, fmt.Errorf("found %s, want a number", quoted(m))
	}
	return integer(i), len(m), nil
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

// unescape is what Jinja does to the inside of a literal: backslashreplace, then
// unicode-escape. A backslash before what is not ASCII so becomes "\xe9", spelled
// out.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i] // a literal never ends inside an escape
		if text, ok := escapes[c]; ok {
			b.WriteString(text)
			continue
		}
		digits, base := 0, 16
		switch {
		case c >= '0' && c <= '7':
			digits, base = 1, 8
			for digits < 3 && i+digits < len(s) && s[i+digits] >= '0' && s[i+digits] <= '7' {
				digits++
			}
			i-- // the first digit is c itself
		case c == 'x':
			digits = 2
		case c == 'u':
			digits = 4
		case c == 'U':
			digits = 8
		case c == 'N':
			return "", errors.New(`found \N in a string: characters by name are not supported`)
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(s[i:])
			b.WriteString(spelledOut(r))
			i += size - 1
			continue
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		end := i + 1 + digits
		if end > len(s) {
			return "", fmt.Errorf(`found \%c in a string, want %d digits after it`, c, digits)
		}
		code, err := strconv.ParseUint(s[i+1:end], base, 32)
		if err != nil || code > utf8.MaxRune {
			return "", fmt.Errorf(`found \%c and %s in a string, want %d digits of a character`, c, quoted(s[i+1:end]), digits)
		}
		b.WriteRune(rune(code))
		i = end - 1
	}
	return b.String(), nil
}

// spelledOut is a character as \xe9, \u20ac or \U0001f600.
func spelledOut(r rune) string {
	switch {
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
