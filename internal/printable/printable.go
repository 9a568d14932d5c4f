// Package printable makes text safe to show.
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text shows what a terminal would obey: control characters but line ends and tabs,
// the marks that turn the direction of writing, and bytes that are no UTF-8, as Go writes
// them in strings. Errors may quote names and texts of files from anywhere.
func Text(s string) string {
	obeyed := func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
	}
	if utf8.ValidString(s) && !strings.ContainsFunc(s, obeyed) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1 || obeyed(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case obeyed(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
