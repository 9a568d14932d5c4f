package tokenizer

import (
	"math"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"glimpse/model/tokenizer/onig"
)

// The split patterns of byte-level models in wide use, scanned by hand: several
// times as fast as running them, with the same words. Each function returns the end of the match that starts at
// byte i < len(s).

// traits are what the patterns tell characters apart by: a class and, of o200k and Tekken, the cases.
type traits uint8

const (
	letter  traits = 1 << iota // \p{L}
	number                     // \p{N}
	space                      // \s but not newline
	newline                    // \r and \n
	other
	capital // \p{Lu}, \p{Lt}, and as small \p{Lm}, \p{Lo}, \p{M}
	small   // \p{Ll}

	class    = capital - 1 // one of the first five
	bothCase = capital | small
)

// classifier finds traits by Unicode's general categories.
func classifier(category func(name string) func(rune) bool) func(rune) traits {
	isLetter, isNumber, isMark := category("L"), category("N"), category("M")
	lu, lt, ll := category("Lu"), category("Lt"), category("Ll")
	return func(r rune) traits {
		switch {
		case r == '\r' || r == '\n':
			return newline
		case unicode.IsSpace(r):
			return space
		case isNumber(r):
			return number
		case isMark(r):
			return other | bothCase
		case !isLetter(r):
			return other
		case lu(r) || lt(r):
			return letter | capital
		case ll(r):
			return letter | small
		}
		return letter | bothCase
	}
}

var asciiTraits = func() (t [utf8.RuneSelf]traits) {
	of := classifier(func(name string) func(rune) bool {
		return func(r rune) bool { return unicode.Is(unicode.Categories[name], r) }
	})
	for r := range t {
		t[r] = of(rune(r))
	}
	return t
}()

// traitsOf is of the Unicode version that the reference follows, which Go's tables
// are behind.
var traitsOf = sync.OnceValue(func() func(rune) traits { return classifier(onig.Category) })

// planeTraits are those of the basic multilingual plane; looking a rune up in
// unicode's range tables takes many times as long.
var planeTraits = sync.OnceValue(func() *[1 << 16]traits {
	t, of := new([1 << 16]traits), traitsOf()
	for r := range t {
		t[r] = of(rune(r))
	}
	return t
})

// traitsAt returns the traits and the size of the rune at byte i.
func traitsAt(s string, i int) (traits, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return asciiTraits[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if r < 1<<16 {
		return planeTraits()[r], n
	}
	return traitsOf()(r), n
}

// classAt returns the class and the size of the rune at byte i.
func classAt(s string, i int) (traits, int) {
	k, n := traitsAt(s, i)
	return k & class, n
}

// stretchEnd returns the end of the stretch of characters that have one of the traits from byte i on.
func stretchEnd(s string, i int, of traits) int {
	for i < len(s) {
		k, n := asciiTraits[s[i]&0x7f], 1
		if s[i] >= utf8.RuneSelf {
			k, n = traitsAt(s, i)
		}
		if k&of == 0 {
			break
		}
		i += n
	}
	return i
}

// spaces matches \s*[\r\n]+|\s+(?!\S)|\s+ (lines) or \s+(?!\S)|\s+ at a byte
// where white space starts: up to the last newline of the stretch, or else all
// of it but the last character if text follows.
func spaces(s string, i int, lines bool) int {
	end, last, line := i, i, 0
	for end < len(s) {
		c, n := classAt(s, end)
		if c&(space|newline) == 0 {
			break
		}
		last = end
		end += n
		if c == newline {
			line = end
		}
	}
	switch {
	case lines && line > 0:
		return line
	case end == len(s) || last == i:
		return end
	}
	return last
}

// contraction returns the length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at the start of
// s, or 0. The long s, ſ, is an s to a regular expression that ignores case.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	lower := func(b byte) byte {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	b := lower(s[1])
	switch b {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	switch c := lower(s[2]); {
	case (b == 'r' || b == 'v') && c == 'e', b == 'l' && c == 'l':
		return 3
	case s[1:3] == "ſ":
		return 3
	}
	return 0
}

// scanLlama3 is Llama-3's pattern: up to three digits make a word.
func scanLlama3(s string, i int) int { return scanModern(s, i, 3) }

// scanQwen is Qwen's pattern: every digit is a word.
func scanQwen(s string, i int) int { return scanModern(s, i, 1) }

// scanCL100k is cl100k's pattern of today: digits are one word, and so is white
// space that ends the text.
func scanCL100k(s string, i int) int {
	if c, _ := classAt(s, i); c&(space|newline) != 0 && strings.TrimLeftFunc(s[i:], unicode.IsSpace) == "" {
		return len(s)
	}
	return scanModern(s, i, math.MaxInt)
}

func scanModern(s string, i, digits int) int {
	c, n := classAt(s, i)
	switch c {
	case letter:
		return stretchEnd(s, i+n, letter)
	case number:
		return numbersEnd(s, i+n, digits-1)
	case other:
		if k := contraction(s[i:]); k > 0 {
			return i + k
		}
	}
	// One character that is not a newline joins the letters after it.
	if j := i + n; c != newline && j < len(s) {
		if d, m := classAt(s, j); d == letter {
			return stretchEnd(s, j+m, letter)
		}
	}
	// Punctuation takes a space before it and newlines after it.
	j := i
	if s[i] == ' ' {
		j++
	}
	if end := stretchEnd(s, j, other); end > j {
		return stretchEnd(s, end, newline)
	}
	return spaces(s, i, true)
}

// scanGPT2 is GPT-2's pattern: letters, digits and punctuation each take a space
// before them; contractions are lower case only.
func scanGPT2(s string, i int) int {
	if k := contraction(s[i:]); k > 0 && !strings.ContainsFunc(s[i+1:i+k], func(r rune) bool { return r < 'a' || r > 'z' }) {
		return i + k
	}
	j := i
	if s[i] == ' ' && i+1 < len(s) {
		j++
	}
	switch c, n := classAt(s, j); c {
	case letter, number, other:
		return stretchEnd(s, j+n, c)
	}
	return spaces(s, i, false)
}
