package tokenizer

import (
	"sync"
	"unicode/utf8"

	"glimpse/model/tokenizer/onig"
)

// The patterns of o200k and Tekken also tell cases apart: a word is capitals, then
// small letters. Letters without case and marks count as both.

// casing is what they tell apart, beside class.
type casing uint8

const (
	noCase   casing = iota
	capital         // \p{Lu}, \p{Lt}
	small           // \p{Ll}
	bothCase        // \p{Lm}, \p{Lo}, \p{M}
)

// casingOf is exact; caseAt looks the basic multilingual plane up.
var casingOf = sync.OnceValue(func() func(rune) casing {
	lu, lt, ll := onig.Category("Lu"), onig.Category("Lt"), onig.Category("Ll")
	letter, mark := onig.Category("L"), onig.Category("M")
	return func(r rune) casing {
		switch {
		case lu(r) || lt(r):
			return capital
		case ll(r):
			return small
		case letter(r) || mark(r):
			return bothCase
		}
		return noCase
	}
})

var planeCasing = sync.OnceValue(func() *[1 << 16]casing {
	t, of := new([1 << 16]casing), casingOf()
	for r := range t {
		t[r] = of(rune(r))
	}
	return t
})

// caseAt returns the casing and the size of the rune at byte i.
func caseAt(s string, i int) (casing, int) {
	if b := s[i]; b < utf8.RuneSelf {
		switch {
		case 'a' <= b && b <= 'z':
			return small, 1
		case 'A' <= b && b <= 'Z':
			return capital, 1
		}
		return noCase, 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if r < 1<<16 {
		return planeCasing()[r], n
	}
	return casingOf()(r), n
}

// smallWord returns the end of [capitals]*[small]+ at byte i, or -1.
func smallWord(s string, i int) int {
	end := -1 // behind the last character that could be the small letters' only one
	for i < len(s) {
		c, n := caseAt(s, i)
		if c == small {
			return cased(s, i+n, small)
		}
		if c == noCase {
			break
		}
		i += n
		if c == bothCase {
			end = i
		}
	}
	return end
}

// capitalWord returns the end of [capitals]+[small]* at byte i, where smallWord has
// found nothing, or -1: what follows the capitals is then no small letter.
func capitalWord(s string, i int) int {
	if end := cased(s, i, capital); end > i {
		return end
	}
	return -1
}

// cased returns the end of the stretch of characters of a case, or of both, from byte i on.
func cased(s string, i int, of casing) int {
	for i < len(s) {
		c, n := caseAt(s, i)
		if c != of && c != bothCase {
			break
		}
		i += n
	}
	return i
}

// scanO200k is the pattern of o200k: GPT-4o and gpt-oss, Phi-4-mini, Llama 4.
func scanO200k(s string, i int) int { return scanCased(s, i, 3, true) }

// scanTekken is Tekken's: Mistral Nemo, Small 3, Ministral.
func scanTekken(s string, i int) int { return scanCased(s, i, 1, false) }

func scanCased(s string, i, digits int, contractions bool) int {
	c, n := classAt(s, i)
	if c == number {
		return numbersEnd(s, i+n, digits-1)
	}
	// One character that is neither newline, letter nor number may open the word.
	// A mark may do that too, and be its first character as well.
	prefix := c == space || c == other
	end := -1
	if prefix {
		end = smallWord(s, i+n)
	}
	if end < 0 {
		end = smallWord(s, i)
	}
	if end < 0 && prefix {
		end = capitalWord(s, i+n)
	}
	if end < 0 {
		end = capitalWord(s, i)
	}
	if end >= 0 {
		if contractions {
			end += contraction(s[end:])
		}
		return end
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if end := stretchEnd(s, j, other); end > j {
		for end < len(s) && (s[end] == '\r' || s[end] == '\n' || s[end] == '/') {
			end++
		}
		return end
	}
	return spaces(s, i, true)
}

// numbersEnd returns the end of up to n numbers from byte i on.
func numbersEnd(s string, i, n int) int {
	for ; n > 0 && i < len(s); n-- {
		c, size := classAt(s, i)
		if c != number {
			break
		}
		i += size
	}
	return i
}
