package tokenizer

import (
	"encoding/json"
	"sync"
	"unicode"
	"unicode/utf8"

	"glimpse/model/tokenizer/onig"
)

// classSplit cuts out the characters of a class: each alone, or each stretch of
// them.
type classSplit struct {
	in         func(rune) bool
	stretches  bool
	characters func(s string, i int) (rune, int) // the character at byte i, and its size
}

func (c classSplit) split(p piece, yield func(piece) error) error {
	start, inside := 0, false
	cut := func(end int) error {
		if start == end {
			return nil
		}
		q := piece{p.text[start:end], p.at + start}
		start = end
		return yield(q)
	}
	for i := 0; i < len(p.text); {
		r, n := c.characters(p.text, i)
		in := c.in(r)
		if in != inside || in && !c.stretches {
			if err := cut(i); err != nil {
				return err
			}
		}
		inside = in
		i += n
	}
	return cut(len(p.text))
}

func textCharacter(s string, i int) (rune, int) { return utf8.DecodeRuneInString(s[i:]) }

// byteCharacter is the character that ByteLevel makes of a byte. Words stay bytes
// here, but what comes after ByteLevel in a file sees those characters: the second
// byte of à is written as ², which is a number.
func byteCharacter(s string, i int) (rune, int) { return byteRunes[s[i]], 1 }

// parsePunctuation reads Punctuation: ASCII's and Unicode's.
func parsePunctuation(raw json.RawMessage) (splitter, error) {
	c := struct {
		Type     string   `json:"type"`
		Behavior behavior `json:"behavior"`
	}{Behavior: isolated}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, err
	}
	if err := c.Behavior.checkKnown(); err != nil {
		return nil, err
	}
	if c.Behavior == isolated || c.Behavior == contiguous {
		return classSplit{isPunctuation, c.Behavior == contiguous, textCharacter}, nil
	}
	return findSplit{find: findRunes(isPunctuation), behavior: c.Behavior}, nil
}

func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && r < 0x7f && asciiTraits[r] == other // $+<=>^`|~ included
	}
	return unicode.Is(unicode.P, r) && !unicode.Is(notPunctuation, r) || r == 0x166D || r == 0x111C9
}

// notPunctuation is what has become punctuation since Unicode 8, which the reference
// follows in this.
var notPunctuation = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x61D, Hi: 0x61D, Stride: 1}, {Lo: 0x9FD, Hi: 0x9FD, Stride: 1}, {Lo: 0xA76, Hi: 0xA76, Stride: 1},
		{Lo: 0xC77, Hi: 0xC77, Stride: 1}, {Lo: 0xC84, Hi: 0xC84, Stride: 1}, {Lo: 0x1B7D, Hi: 0x1B7E, Stride: 1},
		{Lo: 0x2E43, Hi: 0x2E4F, Stride: 1}, {Lo: 0x2E52, Hi: 0x2E5D, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x10EAD, Hi: 0x10EAD, Stride: 1}, {Lo: 0x10F55, Hi: 0x10F59, Stride: 1}, {Lo: 0x10F86, Hi: 0x10F89, Stride: 1},
		{Lo: 0x1144B, Hi: 0x1144F, Stride: 1}, {Lo: 0x1145A, Hi: 0x1145B, Stride: 1}, {Lo: 0x1145D, Hi: 0x1145D, Stride: 1},
		{Lo: 0x11660, Hi: 0x1166C, Stride: 1}, {Lo: 0x116B9, Hi: 0x116B9, Stride: 1}, {Lo: 0x1183B, Hi: 0x1183B, Stride: 1},
		{Lo: 0x11944, Hi: 0x11946, Stride: 1}, {Lo: 0x119E2, Hi: 0x119E2, Stride: 1}, {Lo: 0x11A3F, Hi: 0x11A46, Stride: 1},
		{Lo: 0x11A9A, Hi: 0x11A9C, Stride: 1}, {Lo: 0x11A9E, Hi: 0x11AA2, Stride: 1}, {Lo: 0x11B00, Hi: 0x11B09, Stride: 1},
		{Lo: 0x11C41, Hi: 0x11C45, Stride: 1}, {Lo: 0x11C70, Hi: 0x11C71, Stride: 1}, {Lo: 0x11EF7, Hi: 0x11EF8, Stride: 1},
		{Lo: 0x11F43, Hi: 0x11F4F, Stride: 1}, {Lo: 0x11FFF, Hi: 0x11FFF, Stride: 1}, {Lo: 0x12FF1, Hi: 0x12FF2, Stride: 1},
		{Lo: 0x16E97, Hi: 0x16E9A, Stride: 1}, {Lo: 0x16FE2, Hi: 0x16FE2, Stride: 1}, {Lo: 0x1E95E, Hi: 0x1E95F, Stride: 1},
	},
}

// isNumber follows Unicode 17, as the reference does in this.
func isNumber(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9'
	}
	return numberCategory()(r) || 0x11DE0 <= r && r <= 0x11DE9 || 0x16FF4 <= r && r <= 0x16FF6
}

var numberCategory = sync.OnceValue(func() func(rune) bool { return onig.Category("N") })

// parseDigits reads Digits, which cuts out numbers of any script.
func parseDigits(raw json.RawMessage) (splitter, error) {
	var c struct {
		Type       string `json:"type"`
		Individual bool   `json:"individual_digits"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, err
	}
	return classSplit{isNumber, !c.Individual, textCharacter}, nil
}

// threeDigits is Falcon's pattern, which no other character of ByteLevel's alphabet
// can match.
const threeDigits = `[0-9][0-9][0-9]`

// threeDigitSplit cuts out every three ASCII digits in a row.
type threeDigitSplit struct{}

func (threeDigitSplit) split(p piece, yield func(piece) error) error {
	start, digits := 0, 0
	for i := range len(p.text) {
		if b := p.text[i]; b < '0' || b > '9' {
			digits = 0
			continue
		}
		if digits++; digits < 3 {
			continue
		}
		if from := i - 2; from > start {
			if err := yield(piece{p.text[start:from], p.at + start}); err != nil {
				return err
			}
		}
		if err := yield(piece{p.text[i-2 : i+1], p.at + i - 2}); err != nil {
			return err
		}
		start, digits = i+1, 0
	}
	if start < len(p.text) {
		return yield(piece{p.text[start:], p.at + start})
	}
	return nil
}
