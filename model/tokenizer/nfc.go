package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc is Unicode's canonical composition.
func nfc(s string) string {
	if norm.NFC.IsNormalString(s) {
		return s
	}
	out := norm.NFC.String(s)
	// x/text follows the Stream-Safe Text Process, which puts a combining
	// grapheme joiner after every 30 combining marks. The tokenizers' reference
	// does not, so such text (piled-up accents) is composed by the book.
	const joiner = "\u034f"
	if strings.Count(out, joiner) == strings.Count(s, joiner) {
		return out
	}
	return string(compose(decompose(s)))
}

// decompose is canonical decomposition with canonical ordering (Unicode
// Standard, section 3.11, D109 and D110).
func decompose(s string) []rune {
	out := make([]rune, 0, utf8.RuneCountInString(s))
	for _, r := range s {
		if d := norm.NFD.PropertiesString(string(r)).Decomposition(); d != nil {
			out = append(out, []rune(string(d))...)
		} else {
			out = append(out, []rune(norm.NFD.String(string(r)))...) // Hangul has no table entry
		}
	}
	for i := 0; i < len(out); {
		if combiningClass(out[i]) == 0 {
			i++
			continue
		}
		j := i
		for j < len(out) && combiningClass(out[j]) != 0 {
			j++
		}
		slices.SortStableFunc(out[i:j], func(a, b rune) int {
			return int(combiningClass(a)) - int(combiningClass(b))
		})
		i = j
	}
	return out
}

// compose is canonical composition of a decomposed text (Unicode Standard,
// section 3.11, D117).
func compose(in []rune) []rune {
	out := in[:0]
	starter := -1
	var last uint8 // class of the last rune kept after the starter
	for _, r := range in {
		class := combiningClass(r)
		// Blocked if something of the same or a higher class lies between; a
		// starter composes only with the starter right before it.
		if starter >= 0 && (starter == len(out)-1 || last != 0 && last < class) {
			if c, ok := composePair(out[starter], r); ok {
				out[starter] = c
				continue
			}
		}
		if class == 0 {
			starter = len(out)
		}
		last = class
		out = append(out, r)
	}
	return out
}

// composePair returns the primary composite of two runes.
func composePair(a, b rune) (rune, bool) {
	s := norm.NFC.String(string([]rune{a, b}))
	r, n := utf8.DecodeRuneInString(s)
	return r, n == len(s)
}

func combiningClass(r rune) uint8 {
	if r < 0x300 {
		return 0
	}
	return norm.NFC.PropertiesString(string(r)).CCC()
}
