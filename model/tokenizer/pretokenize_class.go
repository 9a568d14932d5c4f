package tokenizer

import (
	"encoding/json"
	"unicode"
	"unicode/utf8"
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
	if err := c.Behavior.check(); err != nil {
		return nil, err
	}
	if c.Behavior == isolated || c.Behavior == contiguous {
		return classSplit{isPunctuation, c.Behavior == contiguous, textCharacter}, nil
	}
	return findSplit{findRunes(isPunctuation), c.Behavior, false}, nil
}

func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && r < 0x7f && asciiClass[r] == other // $+<=>^`|~ included
	}
	return unicode.Is(unicode.P, r)
}

// parseDigits reads Digits, which cuts out numbers of any script.
func parseDigits(raw json.RawMessage) (splitter, error) {
	var c struct {
		Type       string `json:"type"`
		Individual bool   `json:"individual_digits"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, err
	}
	return classSplit{unicode.IsNumber, !c.Individual, textCharacter}, nil
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
