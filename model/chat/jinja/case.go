package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// chargeCase pays for looking at the characters of a text and changing them.
func (r *run) chargeCase(s string) error {
	if isASCII(s) {
		return r.charge(6 * len(s))
	}
	return r.charge(product(charCost, len(s)))
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func fold(s string) string { return cases.Fold().String(s) }

// titleRune is the character at the start of a title, which may become several.
func titleRune(c rune) string {
	if t := unicode.ToTitle(c); t != c {
		return string(t)
	}
	return cases.Title(language.Und, cases.NoLower).String(string(c))
}

func capitalize(s string) string {
	for i, c := range s {
		n := i + utf8.RuneLen(c)
		return titleRune(c) + lowerFrom(s, n, len(s))
	}
	return ""
}

// lowerFrom is s[from:to] in small letters, as it is in s: a sigma at the end of a
// word is another one.
func lowerFrom(s string, from, to int) string {
	if !strings.Contains(s[from:to], sigma) {
		return lower(s[from:to])
	}
	var b strings.Builder
	for from < to {
		i := strings.Index(s[from:to], sigma)
		if i < 0 {
			break
		}
		b.WriteString(lower(s[from : from+i]))
		from += i + len(sigma)
		if isFinal(s[:from-len(sigma)], s[from:]) {
			b.WriteString("ς")
		} else {
			b.WriteString("σ")
		}
	}
	b.WriteString(lower(s[from:to]))
	return b.String()
}

const sigma = "Σ"

// isFinal tells whether what is between two texts ends a word.
func isFinal(before, after string) bool {
	before = strings.TrimRightFunc(before, caseIgnorable)
	after = strings.TrimLeftFunc(after, caseIgnorable)
	last, _ := utf8.DecodeLastRuneInString(before)
	next, _ := utf8.DecodeRuneInString(after)
	return isCasedRune(last) && !isCasedRune(next)
}

// caseIgnorable are characters within words, such as accents and apostrophes.
func caseIgnorable(c rune) bool {
	return strings.ContainsRune("'.:·\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", c) ||
		unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

// title is str.title: words begin after whatever has no case.
func title(s string) string {
	var b strings.Builder
	inWord := false
	start := 0
	for i, c := range s {
		cased := isCasedRune(c)
		if cased && !inWord {
			b.WriteString(lowerFrom(s, start, i))
			b.WriteString(titleRune(c))
			start = i + utf8.RuneLen(c)
		}
		inWord = cased
	}
	b.WriteString(lowerFrom(s, start, len(s)))
	return b.String()
}

// titleWords is Jinja's filter: words begin after white space and opening brackets.
func titleWords(s string) string {
	var b strings.Builder
	separator := func(c rune) bool { return c == '-' || isSpace(c) || strings.ContainsRune("({[<", c) }
	for s != "" {
		i := strings.IndexFunc(s, func(c rune) bool { return !separator(c) })
		if i < 0 {
			i = len(s)
		}
		b.WriteString(s[:i])
		s = s[i:]
		end := strings.IndexFunc(s, separator)
		if end < 0 {
			end = len(s)
		}
		for k, c := range s[:end] {
			n := k + utf8.RuneLen(c)
			b.WriteString(upper(s[:n]))
			b.WriteString(lower(s[n:end]))
			break
		}
		s = s[end:]
	}
	return b.String()
}

func swapCase(s string) string {
	var b strings.Builder
	for i, c := range s {
		switch n := i + utf8.RuneLen(c); {
		case upperCased(c):
			b.WriteString(lowerFrom(s, i, n))
		case lowerCased(c):
			b.WriteString(upper(s[i:n]))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

func isCasedRune(c rune) bool { return upperCased(c) || lowerCased(c) || unicode.IsTitle(c) }

func upperCased(c rune) bool { return unicode.IsUpper(c) || unicode.Is(unicode.Other_Uppercase, c) }

func lowerCased(c rune) bool { return unicode.IsLower(c) || unicode.Is(unicode.Other_Lowercase, c) }

// isCased: all that has a case has this one, and something has.
func isCased(s string, is func(c rune) bool) bool {
	some := false
	for _, c := range s {
		if is(c) {
			some = true
		} else if isCasedRune(c) {
			return false
		}
	}
	return some
}

func isTitle(s string) bool {
	some, inWord := false, false
	for _, c := range s {
		switch {
		case upperCased(c) || unicode.IsTitle(c):
			if inWord {
				return false
			}
			some, inWord = true, true
		case lowerCased(c):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return some
}

func isDecimal(c rune) bool { return unicode.Is(unicode.Nd, c) }

// digits are the characters that are digits without being decimal numbers.
var digits = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xb2, 0xb3, 1}, {0xb9, 0xb9, 1}, {0x1369, 0x1371, 1}, {0x19da, 0x19da, 1}, {0x2070, 0x2070, 1}, {0x2074, 0x2079, 1},
		{0x2080, 0x2089, 1}, {0x2460, 0x2468, 1}, {0x2474, 0x247c, 1}, {0x2488, 0x2490, 1}, {0x24ea, 0x24ea, 1}, {0x24f5, 0x24fd, 1},
		{0x24ff, 0x24ff, 1}, {0x2776, 0x277e, 1}, {0x2780, 0x2788, 1}, {0x278a, 0x2792, 1},
	},
	R32:         []unicode.Range32{{0x10a40, 0x10a43, 1}, {0x10e60, 0x10e68, 1}, {0x11052, 0x1105a, 1}, {0x1f100, 0x1f10a, 1}},
	LatinOffset: 2,
}

func isDigit(c rune) bool { return isDecimal(c) || unicode.Is(digits, c) }

// isNumeric leaves out the ideographs that are numbers.
func isNumeric(c rune) bool { return unicode.Is(unicode.N, c) }
